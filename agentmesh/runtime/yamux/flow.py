"""The receive window of one stream: credit in bytes, returned when the application took them, growing to the path."""

from agentmesh.runtime.yamux.limits import INITIAL_WINDOW

GROWTH_ROUND_TRIPS = 4  # a whole window consumed within this many round trips is what limits the stream: double it


class WindowBudget:
    """How much all windows of a session may grow beyond their initial size, in bytes."""

    def __init__(self, max_bytes: int) -> None:
        self.left = max_bytes

    def take(self, wanted: int) -> int:
        taken = min(wanted, self.left)
        self.left -= taken
        return taken


class ReceiveWindow:
    """What the peer may still send on one stream.

    Invariant: `credit + buffered <= size`, so a stream never holds more than its window.
    """

    __slots__ = ("_budget", "_epoch_at", "_epoch_bytes", "_max_size", "buffered", "credit", "size")

    def __init__(self, max_size: int, budget: WindowBudget, now: float) -> None:
        self.size = self.credit = INITIAL_WINDOW
        self.buffered = 0
        self._max_size = max_size
        self._budget = budget
        self._epoch_at = now
        self._epoch_bytes = 0  # consumed since

    def received(self, size: int) -> bool:
        """Count bytes from the peer. False when it sent more than it had credit for."""
        if size > self.credit:
            return False
        self.credit -= size
        self.buffered += size
        return True

    def consumed(self, size: int, now: float, rtt: float | None) -> int:
        """Count bytes taken by the application. Returns the credit to send to the peer now, or 0.

        Credit goes out when half the window is due, so that a stream costs one update per half window.
        """
        self.buffered -= size
        self._epoch_bytes += size
        if self._epoch_bytes >= self.size:
            self._end_epoch(now, rtt)
        due = self.size - self.credit - self.buffered
        if due < self.size // 2:
            return 0
        self.credit += due
        return due

    def _end_epoch(self, now: float, rtt: float | None) -> None:
        """A whole window has been consumed: grow when that was as fast as the path allows."""
        if rtt is not None and now - self._epoch_at < GROWTH_ROUND_TRIPS * rtt:
            self.size += self._budget.take(min(self.size, self._max_size - self.size))
        self._epoch_at, self._epoch_bytes = now, 0

    def release(self) -> None:
        """The stream is over: its growth goes back to the session's budget."""
        self._budget.left += self.size - INITIAL_WINDOW
        self.size = INITIAL_WINDOW
