"""When a silent peer is lost: a ping every interval, and two intervals to say anything after it.

So a peer that vanished (no FIN, no RST) is noticed within three intervals.
"""

import enum
import math

LOSS_INTERVALS = 2  # silence after a ping, in intervals


class State(enum.Enum):
    QUIET = "quiet"
    WAITING = "waiting"
    LOST = "lost"


class Input(enum.Enum):
    HEARD = "heard"
    PONG = "pong"
    TIMEOUT = "timeout"


ROWS: dict[State, tuple[State, ...]] = {
    #             HEARD          PONG         TIMEOUT
    State.QUIET: (State.QUIET, State.QUIET, State.WAITING),
    State.WAITING: (State.WAITING, State.QUIET, State.LOST),
    State.LOST: (State.LOST, State.LOST, State.LOST),
}
TRANSITIONS = {(state, got): to for state, row in ROWS.items() for got, to in zip(Input, row, strict=True)}


class KeepAlive:
    """The machine. `deadline` is when `handle_timeout` has something to do; the first ping is due at once.

    Args:
        now: seconds on the caller's clock.
        interval: seconds between pings.
    """

    def __init__(self, now: float, interval: float) -> None:
        self.state = State.QUIET
        self.deadline = now
        self.rtt: float | None = None
        self._interval = interval
        self._pinged_at = now
        self._pings = 0

    def heard(self, now: float) -> None:
        """Bytes came, whatever they say: the peer lives."""
        self._step(Input.HEARD)
        if self.state is State.WAITING:
            self.deadline = now + LOSS_INTERVALS * self._interval

    def pong(self, value: int, now: float) -> None:
        """The answer to a ping. An answer to another than the last one says nothing about the path."""
        if value != self._pings & 0xFFFFFFFF or self.state is not State.WAITING:
            return
        self.rtt = now - self._pinged_at
        self._step(Input.PONG)
        self.deadline = self._pinged_at + self._interval

    def handle_timeout(self, now: float) -> int | None:
        """Returns the value of the ping to send now, or None. `state` is LOST when there is no hope left."""
        if now < self.deadline:
            return None
        self._step(Input.TIMEOUT)
        if self.state is State.LOST:
            self.deadline = math.inf
            return None
        self._pinged_at = now
        self._pings += 1
        self.deadline = now + LOSS_INTERVALS * self._interval
        return self._pings & 0xFFFFFFFF

    def _step(self, got: Input) -> None:
        self.state = TRANSITIONS[self.state, got]
