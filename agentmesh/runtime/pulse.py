"""The pulse of a host: one task that keeps all its sessions alive, since a task of its own for each would cost more
memory than the rest of an idle session, and most of them never have anything to do.
"""

import heapq
import itertools
import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn, Protocol

import attrs
import trio

from agentmesh.runtime.guard import Signal


class Beating(Protocol):
    """What is kept alive."""

    def beat(self, now: float) -> float:
        """Do what is due at `now`, in seconds on Trio's clock; when it is due again, infinity for never."""
        ...


@attrs.define(order=True)
class _Beat:
    """One of what is kept alive, in the order of when it is due; `who` is None once it is not kept any more."""

    due: float
    number: int
    who: Beating | None = attrs.field(order=False)


class Pulse:
    """Beats whatever is kept, each when it is due. `run` is its task."""

    def __init__(self) -> None:
        self._beats: list[_Beat] = []
        self._numbers = itertools.count()
        self._added = Signal()

    def __len__(self) -> int:
        """How many will be due: of those that are kept, and of those let go that were not due yet."""
        return len(self._beats)

    @contextmanager
    def keeping(self, who: Beating) -> Generator[None]:
        """`with pulse.keeping(session):` — beaten from now on, at once for the first time, to the end of the block."""
        beat = _Beat(-math.inf, next(self._numbers), who)
        heapq.heappush(self._beats, beat)
        self._added.set()
        try:
            yield
        finally:
            beat.who = None  # its place in the heap goes when its time comes

    async def run(self) -> NoReturn:
        """Cancellation: whatever is kept is left alone from then on."""
        while True:
            with trio.move_on_at(self._beats[0].due if self._beats else math.inf):
                await self._added.wait()
            self._beat(trio.current_time())

    def _beat(self, now: float) -> None:
        while self._beats and self._beats[0].due <= now:
            beat = self._beats[0]
            beat.due = math.inf if beat.who is None else beat.who.beat(now)
            if beat.due < math.inf:
                heapq.heapreplace(self._beats, beat)
            else:
                heapq.heappop(self._beats)
