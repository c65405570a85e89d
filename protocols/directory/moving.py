"""Keeping records where they belong, as routers come and go and cannot be reached for a while.

That a provider has withdrawn is told to every router, and to each that comes later, for as long as the record could
have lasted: whoever holds one because the provider told it so itself has to hear of it too.
"""

from collections.abc import Callable, Collection, Iterable
from typing import NoReturn

import trio

from agentmesh.protocols.directory.neighbours import Neighbours
from agentmesh.protocols.directory.placement import closest, new_homes
from agentmesh.protocols.directory.store import Name, Record, RecordStore
from agentmesh.types import PeerId

MOVE_INTERVAL = 1.0  # seconds between two looks at whether the routers are still the same
RETRY_INTERVAL = 5.0  # seconds from a placement that failed to the next attempt, with the routers still the same
MAX_PLACING = 16  # records under way to other routers at once, when many move
LEAVE_TIMEOUT = 5.0  # seconds to hand records over before this router leaves


class Mover:
    """Places records on other routers, and remembers those that are not where they belong yet.

    Args:
        store: what this router holds.
        neighbours: the others.
    """

    def __init__(self, store: RecordStore, neighbours: Neighbours) -> None:
        self._store = store
        self._neighbours = neighbours
        self._astray: set[Name] = set()
        self._is_leaving = False

    @property
    def is_leaving(self) -> bool:
        """Whether this router hands its records over, and takes none to keep."""
        return self._is_leaving

    @property
    def astray(self) -> int:
        """How many records are to be placed again."""
        return len(self._astray)

    async def place(self, record: Record) -> int:
        """Place what a member said. Returns how many other routers hold it now; the rest are tried again later."""
        return await self._settle(record, self._homes(record, self._routers), set())

    def receive(self, record: Record) -> None:
        """Another router has placed a record here, perhaps by a list of routers that is not ours."""
        if not self.belongs(record) and not record.withdrawn:
            self._astray.add((record.key, record.provider))

    async def run(self) -> NoReturn:
        """Move records as routers come and go, and drop those whose time is over, until cancelled."""
        before, retry_at = self._routers, trio.current_time() + RETRY_INTERVAL
        while True:
            await trio.sleep(MOVE_INTERVAL)
            self._store.expire(trio.current_time())
            after = self._routers
            if after != before or trio.current_time() >= retry_at:
                lost = self._lost()
                await self._move(self._store if after != before else lost, before, after)
                before, retry_at = after, trio.current_time() + RETRY_INTERVAL

    async def leave(self, timeout: float = LEAVE_TIMEOUT) -> None:
        """Hand records over to the routers to which they belong without this one, which answers for them meanwhile.

        Args:
            timeout: seconds; what is not handed over by then is left to the other routers that hold it.
        """
        before, self._is_leaving = self._neighbours.routers, True
        with trio.move_on_after(timeout):
            await self._move(self._store, before, self._routers)

    @property
    def _routers(self) -> frozenset[PeerId]:
        """Those to which records may belong."""
        routers = self._neighbours.routers
        return routers - {self._neighbours.me} if self._is_leaving else routers

    async def _move(self, records: Iterable[Record], before: Collection[PeerId], after: Collection[PeerId]) -> None:
        """Place records where they belong since the routers changed. A router that fails is asked no more meanwhile."""
        waiting, down = iter(tuple(records)), set[PeerId]()
        homes = self._new_homes(before, after)

        async def work() -> None:
            for record in waiting:
                await self._settle(record, homes(record), down)

        async with trio.open_nursery() as nursery:
            for _ in range(MAX_PLACING):
                nursery.start_soon(work)

    async def _settle(self, record: Record, homes: Iterable[PeerId], down: set[PeerId]) -> int:
        others = [home for home in homes if home != self._neighbours.me]
        placed = await self._neighbours.place(record, others, down)
        name = record.key, record.provider
        held = self._store.get(*name, trio.current_time())
        if down.intersection(others):
            self._astray.add(name)
        elif held is None or held.sequence == record.sequence:
            self._astray.discard(name)
            if placed == len(others) and not self.belongs(record):
                self._store.remove(record)
        return placed

    def belongs(self, record: Record) -> bool:
        """Whether a record is to be here."""
        here = self._neighbours.me in self._closest(record, self._neighbours.routers)
        return record.direct or here or self._is_leaving

    def _lost(self) -> list[Record]:
        """What is astray and still there."""
        now = trio.current_time()
        found = [record for name in self._astray if (record := self._store.get(*name, now)) is not None]
        self._astray = {(record.key, record.provider) for record in found}
        return found

    def _new_homes(
        self, before: Collection[PeerId], after: Collection[PeerId]
    ) -> Callable[[Record], tuple[PeerId, ...]]:
        """Where to place a record: what is astray may be missing at its old homes too."""
        count = self._neighbours.replication()

        def homes(record: Record) -> tuple[PeerId, ...]:
            if (record.key, record.provider) in self._astray:
                return self._homes(record, after)
            if record.withdrawn:
                return tuple(set(after).difference(before))
            return new_homes(record.key, before, after, count)

        return homes

    def _homes(self, record: Record, routers: Collection[PeerId]) -> tuple[PeerId, ...]:
        return tuple(routers) if record.withdrawn else self._closest(record, routers)

    def _closest(self, record: Record, routers: Collection[PeerId]) -> tuple[PeerId, ...]:
        return closest(record.key, routers, self._neighbours.replication())
