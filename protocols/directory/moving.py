"""Keeping records where they belong, as routers come and go and cannot be reached for a while."""

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

    @property
    def astray(self) -> int:
        """How many records are to be placed again."""
        return len(self._astray)

    async def place(self, record: Record) -> int:
        """Place what a member said. Returns how many other routers hold it now; the rest are tried again later."""
        return await self._settle(record, self._closest(record, self._neighbours.routers), set())

    def receive(self, record: Record) -> None:
        """Another router has placed a record here, perhaps by a list of routers that is not ours."""
        if not self._belongs(record):
            self._astray.add((record.key, record.provider))

    async def run(self) -> NoReturn:
        """Move records as routers come and go, and drop those whose time is over, until cancelled."""
        before, retry_at = self._neighbours.routers, trio.current_time() + RETRY_INTERVAL
        while True:
            await trio.sleep(MOVE_INTERVAL)
            self._store.expire(trio.current_time())
            after = self._neighbours.routers
            if after != before or trio.current_time() >= retry_at:
                lost = self._lost()
                await self._move(self._store if after != before else lost, before, after)
                before, retry_at = after, trio.current_time() + RETRY_INTERVAL

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
            if placed == len(others) and not self._belongs(record):
                self._store.remove(record)
        return placed

    def _belongs(self, record: Record) -> bool:
        return record.direct or self._neighbours.me in self._closest(record, self._neighbours.routers)

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
                return self._closest(record, after)
            return new_homes(record.key, before, after, count)

        return homes

    def _closest(self, record: Record, routers: Collection[PeerId]) -> tuple[PeerId, ...]:
        return closest(record.key, routers, self._neighbours.replication())
