"""Who waits on a stream, and is woken by its session."""

from collections.abc import Callable

import trio

from agentmesh.runtime.guard import Guard


class Wakes:
    """The tasks that wait on one stream: whoever sends, whoever receives, and those that only want to know its end.

    Attributes:
        on_news: called, synchronously, when something has come or the stream has ended. It is there for one who has too
            many streams for a task that waits on each, and must not raise.
    """

    def __init__(self) -> None:
        self.on_news: Callable[[], None] | None = None
        self._sending = Guard("sending")
        self._receiving = Guard("receiving")
        self._watcher: trio.lowlevel.ParkingLot | None = None  # few streams have one

    def wake(self) -> None:
        """The stream has ended, one way or another."""
        self._receiving.wake()
        self._sending.wake()
        if self._watcher is not None:
            self._watcher.unpark_all()
        if self.on_news is not None:
            self.on_news()

    def wake_receiver(self) -> None:
        self._receiving.wake()
        if self.on_news is not None:
            self.on_news()

    def wake_sender(self) -> None:
        self._sending.wake()

    async def _wait_end(self) -> None:
        """Until `wake`."""
        if self._watcher is None:
            self._watcher = trio.lowlevel.ParkingLot()
        await self._watcher.park()
