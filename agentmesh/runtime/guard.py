"""Small synchronisation pieces that Trio leaves to its users: cheaper than its parking lots, where one task waits."""

from types import TracebackType

import trio


class Seat:
    """Where one task waits until it is woken."""

    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None

    async def wait(self) -> None:
        """Until `wake`. One task at a time."""
        if self._task is not None:
            raise trio.BusyResourceError("another task is already waiting here")
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._leave)

    def wake(self) -> None:
        """Wake the task that waits, if there is one."""
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    def _leave(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


class Guard(Seat):
    """Lets one task at a time into a block, where it may wait; a second one gets trio.BusyResourceError, as Trio's
    streams do it.
    """

    __slots__ = ("_busy", "_doing")

    def __init__(self, doing: str) -> None:
        super().__init__()
        self._busy = False
        self._doing = doing

    @property
    def busy(self) -> bool:
        """Whether a task is in the block."""
        return self._busy

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

    __slots__ = ("_raised", "_seat")

    def __init__(self) -> None:
        self._raised = False
        self._seat = Seat()

    def set(self) -> None:
        if not self._raised:
            self._raised = True
            self._seat.wake()

    async def wait(self) -> None:
        if self._raised:
            await trio.lowlevel.checkpoint()
        while not self._raised:
            await self._seat.wait()
        self._raised = False
