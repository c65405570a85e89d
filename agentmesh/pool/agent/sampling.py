"""What a session's sending side says of its path: how much waits for the link, and for how long.

Bytes for a peer that gives no credit do not count: it is the reader that is slow then, and another path would not help.
"""

from collections import deque

from agentmesh.runtime.session import MuxSession

SAMPLES = 64
PERCENTILE = 0.95
RATE_SAMPLES = 5


def backlog_of(session: MuxSession) -> tuple[int, int]:
    """The bytes that wait for the link, and how many may."""
    channels = [stream.channel for stream in session.streams]
    waiting = [channel.queued for channel in channels if channel is not None and channel.send_credit > 0]
    return sum(waiting), session.config.send_buffer_bytes * max(len(waiting), 1)


class QueueWait:
    """How long bytes wait: the last looks, each what waited by how fast it left.

    Args:
        now: when it begins.
    """

    def __init__(self, now: float) -> None:
        self._waits: deque[float] = deque(maxlen=SAMPLES)
        self._moves: deque[tuple[int, float]] = deque(maxlen=RATE_SAMPLES)
        self._sent = 0
        self._sent_at = self._looked_at = now

    def look(self, backlog: int, sent: int, now: float) -> None:
        """Once more.

        Args:
            backlog: bytes that wait.
            sent: bytes that have left, since ever.
        """
        elapsed, moved = now - self._looked_at, sent - self._sent
        if elapsed <= 0:
            return
        if moved or not backlog:
            self._sent_at = now
        self._moves.append((moved, elapsed))
        self._waits.append(backlog * elapsed / moved if moved else now - self._sent_at)
        self._sent, self._looked_at = sent, now

    @property
    def percentile(self) -> float:
        """Seconds: 95 of a hundred looks saw no longer wait."""
        if not self._waits:
            return 0.0
        ranked = sorted(self._waits)
        return ranked[min(int(PERCENTILE * len(ranked)), len(ranked) - 1)]

    @property
    def rate(self) -> float:
        """Bytes a second that have left, over the last few looks."""
        elapsed = sum(seconds for _, seconds in self._moves)
        return sum(moved for moved, _ in self._moves) / elapsed if elapsed else 0.0
