"""The receive window of one stream: credit in bytes, returned when the application took them, growing to the path."""

from agentmesh.runtime.yamux.limits import INITIAL_WINDOW
from agentmesh.runtime.yamux.memory import Memory

HELD_BACK = 97  # bytes
UPDATES_PER_WINDOW = 4  # with fewer, a path waits for credit though its window is as large as the path


class ReceiveWindow:
    """What the peer may still send on one stream.

    Invariant: `credit + buffered <= size`, so a stream never holds more than its window.

    It grows to the path: a whole window in which the peer ran out of credit while the application had read everything
    was the window's fault, and doubles it. A slow reader never empties its buffer, a slow sender never runs out of
    credit; neither makes it grow. On a long path more credit is under way by the time that the peer has run out: it
    ended a frame exactly where the credit that it knew of ended.
    """

    __slots__ = (
        *("_consumed", "_drained", "_exhausted", "_limits", "_max_size", "_memory", "_received"),
        *("buffered", "credit", "size"),
    )

    def __init__(self, max_size: int, memory: Memory) -> None:
        self.size = self.credit = INITIAL_WINDOW
        self.buffered = 0
        self._max_size = max_size
        self._memory = memory
        self._received = 0  # since the beginning
        self._limits: list[int] = []  # where older credit ends, counted like it; the newest is not among them
        self._consumed = 0  # of the window that is being judged
        self._exhausted = False
        self._drained = False

    def received(self, size: int) -> bool:
        """Count bytes from the peer. False when it sent more than it had credit for."""
        if size > self.credit:
            return False
        self.credit -= size
        self.buffered += size
        self._memory.receive(size)
        self._received += size
        while self._limits and self._limits[0] < self._received:
            del self._limits[0]  # of a handful
        if not self.credit or (self._limits and self._limits[0] == self._received):
            self._exhausted = True
        return True

    def consumed(self, size: int) -> int:
        """Count bytes taken by the application. Returns the credit to send to the peer now, or 0.

        Credit goes out when a quarter of the window is due, so that a stream costs four updates per window. A few bytes
        are held back: where a round number of them ended, frames would end by chance.
        """
        self.taken(size)
        self._consumed += size
        if not self.buffered:
            self._drained = True
        if self._consumed >= self.size:
            self._judge()
        due = self.size - self.credit - self.buffered
        if due < self.size // UPDATES_PER_WINDOW:
            return 0
        due -= HELD_BACK
        limit = self._received + self.credit
        if limit != INITIAL_WINDOW:  # round
            self._limits.append(limit)
        self.credit += due
        return due

    def taken(self, size: int) -> None:
        """Count bytes taken from, or dropped of, a stream that gets no credit any more."""
        self.buffered -= size
        self._memory.receive(-size)

    def _judge(self) -> None:
        """A whole window has been consumed: grow if it was what limited the stream."""
        if self._exhausted and self._drained:
            self.size += self._memory.grow(min(self.size, self._max_size - self.size))
        self._consumed, self._exhausted, self._drained = 0, False, False

    def release(self) -> None:
        """The stream is over: others may grow by what it has grown."""
        self._memory.grow(INITIAL_WINDOW - self.size)
        self.size = INITIAL_WINDOW
