"""Small synchronisation pieces that Trio leaves to its users."""

from types import TracebackType

import trio


class Guard:
    """Lets one task at a time into a block; a second one gets trio.BusyResourceError, as Trio's streams do it."""

    __slots__ = ("_busy", "_doing")

    def __init__(self, doing: str) -> None:
        self._busy = False
        self._doing = doing

    def __enter__(self) -> None:
        if self._busy:
            raise trio.BusyResourceError(f"another task is already {self._doing} on this stream")
        self._busy = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._busy = False


class Signal:
    """A flag that one task waits for and any may raise; waiting lowers it. Raised twice before a wait, it counts
    once.
    """

    __slots__ = ("_lot", "_raised")

    def __init__(self) -> None:
        self._raised = False
        self._lot = trio.lowlevel.ParkingLot()

    def set(self) -> None:
        self._raised = True
        self._lot.unpark_all()

    async def wait(self) -> None:
        if self._raised:
            await trio.lowlevel.checkpoint()
        while not self._raised:
            await self._lot.park()
        self._raised = False
