"""Keys, leases and bans in memory: what nearly every request needs, and what rarely changes.

Each reading transaction of this process first compares how often they have changed, and reads what is new. So whatever
it finds is seen together with the keys, leases and bans of the same moment, whichever replica changed them.
"""

from collections.abc import Mapping

import attrs
import trio
from sqlalchemy import Connection

from agentmesh.control_plane import queries
from agentmesh.control_plane.bans import banned_peers
from agentmesh.control_plane.database import Database, StoreError
from agentmesh.control_plane.generations import Topic, numbers
from agentmesh.control_plane.keyring import StoredKey, first_key, keys, rotate
from agentmesh.control_plane.records import Lease


@attrs.frozen
class Snapshot:
    """Keys, leases and bans as of one moment."""

    numbers: Mapping[str, int] = attrs.field(factory=dict[str, int])  # how often each topic had changed
    keys: tuple[StoredKey, ...] = ()  # oldest first; the last one signs
    banned: frozenset[str] = frozenset()  # peer IDs
    leases: tuple[Lease, ...] = ()  # by peer ID; some may have run out since, some be of routers that are banned
    listed: tuple[Lease, ...] = attrs.field(  # those of the others
        init=False,
        default=attrs.Factory(
            lambda self: tuple(lease for lease in self.leases if str(lease.peer) not in self.banned), takes_self=True
        ),
    )

    def live_leases(self, now: float) -> tuple[Lease, ...]:
        """Those that have not run out at `now` (wall seconds), of routers that are not banned."""
        return tuple(lease for lease in self.listed if lease.expires_at > now)


class Mirror:
    """The newest snapshot that this process has, and how to get a newer one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.latest = Snapshot()
        self._turn = trio.Lock()
        self._begun = 0  # looks
        self._seen: tuple[int, StoreError | None] = (0, None)  # the last look that ended, and what became of it
        database.watch(self._look, self._note)

    async def look(self) -> Snapshot:
        """What is so now: no change that ended before this call is missing. Many calls at once share a transaction.

        Raises:
            StoreError: the database does not answer.
        """
        called = self._begun
        async with self._turn:
            if self._seen[0] <= called:
                self._begun = mine = self._begun + 1
                self._seen = mine, await self._fault_of_a_look()
            fault = self._seen[1]
        if fault is not None:
            raise StoreError(str(fault)) from fault
        return self.latest

    async def first_key(self, candidate: bytes, now: float) -> None:
        """Make `candidate` the key that signs if there is none. Raises StoreError; RacedError: there is one by now."""
        await self._database.write(lambda connection: first_key(connection, candidate, now))
        await self.look()

    async def rotate(self, seen: StoredKey, candidate: bytes, now: float, grace: float) -> None:
        """Retire the key that signs for `candidate`.

        Args:
            seen: the key that signs, as it was read.
            grace: seconds that it is honoured for after this.
        Raises:
            RacedError: it is another by now. Nothing was changed.
            StoreError: the database does not answer.
        """
        await self._database.write(lambda connection: rotate(connection, seen, candidate, now, grace))
        await self.look()

    async def _fault_of_a_look(self) -> StoreError | None:
        try:
            await self._database.read(lambda _: None)
        except StoreError as exc:
            return exc
        return None

    def _look(self, connection: Connection) -> Snapshot:
        known, now = self.latest, numbers(connection)
        if now == known.numbers:
            return known

        def is_new(topic: Topic) -> bool:
            return now.get(topic.value) != known.numbers.get(topic.value)

        return Snapshot(
            numbers=now,
            keys=keys(connection) if is_new(Topic.KEYS) else known.keys,
            leases=queries.leases(connection, 0.0) if is_new(Topic.LEASES) else known.leases,
            banned=banned_peers(connection) if is_new(Topic.BANS) else known.banned,
        )

    def _note(self, found: Snapshot) -> None:
        # Transactions end in another order than they began: one that began earlier knows no number that is higher.
        if any(number > self.latest.numbers.get(topic, 0) for topic, number in found.numbers.items()):
            self.latest = found
