"""How well a connection serves: the rate of its failures, and when it is left out for them."""

import enum
import math

HALF_LIFE = 30.0  # seconds in which what happened counts half
GAIN = 0.2  # of the newest outcome
MIN_OUTCOMES = 5  # before a rate is believed
UNHEALTHY_RATE = 500  # thousandths
BASE_EJECTION = 30.0  # seconds; twice as long each time
MAX_EJECTION = 300.0  # seconds; so long without another, and the count begins anew
_FORGOTTEN = 0.01


class FailureRate:
    """How many of the recent opens failed for the connection's own fault."""

    def __init__(self) -> None:
        self._value = 0.0
        self._at = 0.0
        self._outcomes = 0

    def record(self, failed: bool, now: float) -> None:
        self._decay(now)
        self._value += GAIN * (failed - self._value)
        self._outcomes += 1

    def thousandths(self, now: float) -> int:
        """From 0 to 1000. It falls when nothing happens."""
        self._decay(now)
        return round(1000 * self._value)

    def is_unhealthy(self, now: float) -> bool:
        return self._outcomes >= MIN_OUTCOMES and self.thousandths(now) >= UNHEALTHY_RATE

    def reset(self) -> None:
        self._value, self._outcomes = 0.0, 0

    def _decay(self, now: float) -> None:
        self._value *= math.exp2(-max(now - self._at, 0.0) / HALF_LIFE)
        self._at = max(now, self._at)
        if self._value < _FORGOTTEN:
            self._outcomes = min(self._outcomes, MIN_OUTCOMES - 1)


class Standing(enum.Enum):
    IN = "gets streams"
    OUT = "gets none"
    ON_TRIAL = "gets one, and that decides"


class Verdict(enum.Enum):
    CROSSED = "its failure rate is too high"
    ELAPSED = "its time is over"
    GOOD = "a trial went well"
    BAD = "a trial failed"


_IN, _OUT, _TRIAL = Standing
# fmt: off
ROWS: dict[Standing, tuple[Standing, ...]] = {
    #        CROSSED ELAPSED GOOD    BAD
    _IN:    (_OUT,   _IN,    _IN,    _IN),
    _OUT:   (_OUT,   _TRIAL, _OUT,   _OUT),
    _TRIAL: (_TRIAL, _TRIAL, _IN,    _OUT),
}
# fmt: on
TRANSITIONS = {(was, got): to for was, row in ROWS.items() for got, to in zip(Verdict, row, strict=True)}


class Health:
    """A connection's failures and what follows from them.

    Attributes:
        on_trial: whether a trial is under way.
    """

    def __init__(self) -> None:
        self.rate = FailureRate()
        self.on_trial = False
        self._standing = Standing.IN
        self._until = -math.inf
        self._ejections = 0

    def standing(self, now: float) -> Standing:
        if self._standing is Standing.OUT and now >= self._until:
            self._step(Verdict.ELAPSED, now)
        return self._standing

    def begin(self, now: float) -> bool:
        """A stream is to be opened. Returns whether it is the trial."""
        if self.standing(now) is not Standing.ON_TRIAL or self.on_trial:
            return False
        self.on_trial = True
        return True

    def record(self, failed: bool, now: float, trial: bool = False) -> None:
        """An open is over.

        Args:
            failed: for the connection's own fault.
            trial: as `begin` said.
        """
        self.rate.record(failed, now)
        if trial:
            self.on_trial = False
            self._step(Verdict.BAD if failed else Verdict.GOOD, now)
        elif self.rate.is_unhealthy(now):
            self._step(Verdict.CROSSED, now)

    def give_up(self, trial: bool) -> None:
        """An open was given up before it said anything of the connection."""
        if trial:
            self.on_trial = False

    def _step(self, got: Verdict, now: float) -> None:
        was, self._standing = self._standing, TRANSITIONS[self._standing, got]
        if self._standing is Standing.OUT and was is not Standing.OUT:
            if now - self._until > MAX_EJECTION:
                self._ejections = 0
            self._until = now + min(BASE_EJECTION * 2**self._ejections, MAX_EJECTION)
            self._ejections = min(self._ejections + 1, 16)
        if self._standing is Standing.IN and was is not Standing.IN:
            self.rate.reset()
