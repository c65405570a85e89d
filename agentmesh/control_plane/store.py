"""What the control plane remembers, and the only ways in which it changes.

Every call is one transaction in a worker thread. A change happens if the row still is what the caller saw; else
RacedError says to look again. So decisions are made outside the database, from what was read, and two callers, of this
process or of another on the same database, never both act on the same state.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import attrs
from sqlalchemy import Connection

from agentmesh.control_plane import queries
from agentmesh.control_plane.access import AccessStore, Standing
from agentmesh.control_plane.database import Database, RacedError, StoreError, open_database
from agentmesh.control_plane.keyring import keys
from agentmesh.control_plane.known import everything
from agentmesh.control_plane.mirror import Mirror
from agentmesh.control_plane.outbox import Outbox
from agentmesh.control_plane.records import (
    BootstrapToken,
    Census,
    Enrollment,
    EnrollmentRequest,
    Issue,
    Lease,
    Node,
    Owner,
    Status,
    TokenOwner,
)
from agentmesh.control_plane.retention import forget
from agentmesh.types import PeerId

MAX_LISTED = 1000  # rows in one answer to an admin
MAX_RACES = 20  # times that a decision is made anew because another call was faster

T = TypeVar("T")


@attrs.frozen
class Known:
    """What there is of a peer."""

    token: BootstrapToken | None  # that it shows
    enrollment: Enrollment | None
    node: Node | None
    standing: Standing


class Store:
    """Any call raises StoreError when the database does not answer. `now` and other instants: wall-clock seconds.

    Cancellation: a change that has begun is carried through; the caller is cancelled after it.

    Attributes:
        access: who may do what: the policy, whose what is, bans.
        outbox: events that the mesh is to be told of.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.mirror = Mirror(database)
        self.access = AccessStore(database)
        self.outbox = Outbox(database)

    async def ping(self) -> None:
        """Return when the database answers."""
        await self._database.read(keys)

    async def add_token(self, token: BootstrapToken, owner: TokenOwner | None = None) -> None:
        await self._database.write(partial(queries.add_token, token=token, owner=owner))

    async def tokens(self) -> list[BootstrapToken]:
        """The newest MAX_LISTED, newest first."""
        return await self._database.read(partial(queries.tokens, limit=MAX_LISTED))

    async def revoke_token(self, token_id: str, now: float) -> bool:
        """Revoke for good; doing it again changes nothing. False: there is no such token."""
        return await self._database.write(partial(queries.revoke_token, token_id=token_id, now=now))

    async def look_up(self, peer: PeerId, token_id: str = "") -> Known:
        """What a request of a peer is decided from, as of one moment.

        Args:
            token_id: of the bootstrap token that it shows.
        """
        job = partial(everything, peer=peer, token_id=token_id, revision=self.access.revision)
        read = await self._database.read_together(job)
        return Known(read.token, read.enrollment, read.node, self.access.standing_of(read.found))

    async def enrollment(self, enrollment_id: int) -> tuple[Enrollment, BootstrapToken | None] | None:
        """An enrollment and its bootstrap token, as of one moment."""

        def job(connection: Connection) -> tuple[Enrollment, BootstrapToken | None] | None:
            found = queries.enrollment_by_id(connection, enrollment_id)
            return None if found is None else (found, queries.token(connection, found.token_id))

        return await self._database.read(job)

    async def enrollments(self, status: Status | None = None) -> list[Enrollment]:
        """The newest MAX_LISTED of one status, or of any, newest first."""
        return await self._database.read(partial(queries.enrollments, status=status, limit=MAX_LISTED))

    async def hold(self, request: EnrollmentRequest, seen: Enrollment | None, now: float) -> None:
        """Keep the request until an admin decides.

        Args:
            request: what the peer asks for.
            seen: the peer's enrollment as it was read; None when there was none.
        Raises:
            RacedError: it is another by now.
            TooManyPendingError: too many wait already.
        """
        await self._database.write(partial(queries.hold, request=request, seen=seen, now=now))

    async def grant(
        self,
        request: EnrollmentRequest,
        seen: Enrollment | None,
        issue: Issue,
        now: float,
        owner: Owner | None = None,
    ) -> None:
        """Spend one usage of the bootstrap token and admit the peer with the credential issued.

        Args:
            owner: whose the peer is, to be noted.
        Raises:
            RacedError: the enrollment is another than `seen` by now, the token admits nobody any more, or the peer or
                its owner is banned.
        """
        job = partial(queries.grant, request=request, seen=seen, issue=issue, now=now, owner=owner)
        await self._database.write(job)

    async def reject(self, seen: Enrollment, now: float) -> None:
        """Turn the peer away. Raises RacedError."""
        await self._database.write(partial(queries.reject, seen=seen, now=now))

    async def node(self, peer: PeerId) -> Node | None:
        return await self._database.read(partial(queries.node, peer=peer))

    async def replace_issue(
        self,
        peer: PeerId,
        presented: bytes,
        issue: Issue,
        labels: Mapping[str, str] | None = None,
        owner: Owner | None = None,
    ) -> None:
        """Redeem the last credential issued to `peer` for a new one.

        Args:
            labels: those that it attests from now on; None: the same as before.
            owner: whose the peer is, to be noted.
        Raises:
            RacedError: `presented` is not the last one, or the peer or its owner is banned.
        """
        job = partial(queries.replace_issue, peer=peer, presented=presented, issue=issue, labels=labels, owner=owner)
        await self._database.write(job)

    async def renew_lease(self, lease: Lease) -> None:
        await self._database.write(partial(queries.renew_lease, lease=lease))

    async def live_leases(self, now: float) -> tuple[Lease, ...]:
        """The leases that have not run out, of routers that are not banned, by peer ID."""
        return (await self.mirror.look()).live_leases(now)

    async def forget(self, now: float, retention: float) -> int:
        """Delete what ended more than `retention` seconds ago. How many nodes there were among it."""
        return await self._database.write(partial(forget, now=now, retention=retention))

    async def census(self, now: float) -> Census:
        """Cancellation: at once; the reading goes on by itself until it ends."""
        return await self._database.read(partial(queries.census, now=now), abandon=True)


@asynccontextmanager
async def open_store(dsn: str) -> AsyncGenerator[Store]:
    """Open the store in the database that `dsn` names; see `open_database` for what it raises."""
    async with open_database(dsn) as database:
        yield Store(database)


async def until_settled(attempt: Callable[[], Awaitable[T]]) -> T:
    """Run `attempt`, which reads, decides and changes, until no other call comes between its reading and its change.

    Raises:
        StoreError: MAX_RACES others were faster.
    """
    for _ in range(MAX_RACES):
        try:
            return await attempt()
        except RacedError:
            continue
    raise StoreError("too many callers change the same at once")
