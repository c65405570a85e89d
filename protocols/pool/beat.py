"""When to ask whether the peer is there, what its answers say, and when it is not."""

import math

from agentmesh.errors import RemoteProtocolError

HEARTBEAT_INTERVAL = 10.0  # seconds
FRESH_INTERVALS = 2.5  # heard within so many: fresh enough for new streams
LOST_INTERVALS = 3.0  # nothing heard for so many: gone
RTT_GAIN = 1 / 8
MAX_UNANSWERED = 4


class Beat:
    """The heartbeats of one side.

    Attributes:
        heard_at: when anything last came.
        rtt: smoothed, in seconds; None before the first answer.
    """

    def __init__(self, now: float, interval: float = HEARTBEAT_INTERVAL) -> None:
        self.interval = interval
        self.heard_at = now
        self.rtt: float | None = None
        self._next_at = now
        self._seq = 0
        self._unanswered: dict[int, float] = {}

    @property
    def deadline(self) -> float:
        """When to ask again, or to give up."""
        return min(self._next_at, self._lost_at)

    @property
    def _lost_at(self) -> float:
        return self.heard_at + LOST_INTERVALS * self.interval

    def is_lost(self, now: float) -> bool:
        return now >= self._lost_at

    def is_overdue(self, now: float) -> bool:
        """Whether an answer has not come for a whole interval."""
        return any(now - sent_at > self.interval for sent_at in self._unanswered.values())

    def heard(self, now: float) -> None:
        self.heard_at = now

    def ask(self, now: float) -> int | None:
        """The number to ask with, when it is time to."""
        if now < self._next_at:
            return None
        self._next_at = now + self.interval
        self._seq += 1
        self._unanswered[self._seq] = now
        if len(self._unanswered) > MAX_UNANSWERED:
            del self._unanswered[min(self._unanswered)]
        return self._seq

    def answered(self, seq: int, now: float) -> float | None:
        """How long that answer took; None when it is too late to say.

        Raises:
            RemoteProtocolError: nobody asked.
        """
        if not 0 < seq <= self._seq:
            raise RemoteProtocolError("an answer to a heartbeat that was not sent")
        sent_at = self._unanswered.pop(seq, math.nan)
        if math.isnan(sent_at):
            return None
        took = now - sent_at
        self.rtt = took if self.rtt is None else self.rtt + RTT_GAIN * (took - self.rtt)
        return took
