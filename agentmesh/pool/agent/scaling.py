"""Whether an agent needs more connections or fewer: what its transport says, and what speaks against following it.

A target that is slow is no reason: another connection to the router would not make it faster. What is known of targets
is recorded and not acted on.
"""

import enum
from collections import deque
from collections.abc import Sequence

import attrs

from agentmesh.pool.agent.config import ConnectionsConfig

UP_EVALUATIONS = 2  # in a row that want more
DOWN_EVALUATIONS = 3  # in a row in which the candidate is not needed
HIGH_PRESSURE = 0.8  # of the send queue
HIGH_QUEUE_WAIT = 0.1  # seconds, 95th percentile
HIGH_RTT = 0.5  # seconds, when it has also risen
RISEN_RTT = 1.5  # times the lowest of the connection's life: far away is not congested

MAX_REVERSALS = 4  # changes of direction
FLAP_INTERVAL = 600.0  # seconds in which they count, and for which nothing is taken away after too many
BENEFIT = 0.9  # of the wait before: what is above has not helped
BENEFIT_EVALUATIONS = 2
MIN_WAIT = 0.001  # seconds; below it there is nothing to improve
MAX_PATIENCE = 64  # times the cooldown after what did not help
MAX_RECORDS = 64


class Decision(enum.StrEnum):
    """What an evaluation came to. The first three are what the metric counts."""

    SCALE_UP = "scale_up"
    SCALE_DOWN = "scale_down"
    REJECTED = "rejected"  # something was wanted, and something spoke against it
    HOLD = "hold"  # nothing was wanted


class Reason(enum.StrEnum):
    """Why. Of a rejection: what was wanted is in `wanted`."""

    # for more
    HIGH_STREAMS = "high_streams"
    QUEUE_PRESSURE = "queue_pressure"
    SEND_LATENCY = "send_latency"
    CONTENTION = "contention"
    # for fewer
    LOW_LOAD = "low_load"
    # against
    WINDOW = "window"  # not for long enough
    AT_MAX = "at_max"
    ACK_MISSING = "ack_missing"
    UNSUPPORTED = "unsupported"  # a router without pools is among those connected to
    DIALING = "dialing"
    COOLDOWN = "cooldown"
    NO_BENEFIT = "no_benefit"
    PROJECTION = "projection"  # the others would be loaded too much
    FLAPPING = "flapping"
    # neither
    STEADY = "steady"
    NO_REPORTS = "no_reports"


@attrs.frozen
class Report:
    """How one connection is.

    Attributes:
        queue_pressure: how full its send queue is, from 0 to 1.
        queue_wait: seconds that bytes wait in it, 95th percentile.
        rtt: of heartbeats, smoothed, in seconds; None before the first.
        transport_errors: since the last report: of the connection, not of targets.
        open_failures, target_wait: of targets. Recorded only.
        sent_rate: bytes a second that leave, of late.
    """

    active_streams: int = 0
    queue_pressure: float = 0.0
    queue_wait: float = 0.0
    rtt: float | None = None
    transport_errors: int = 0
    open_failures: int = 0
    target_wait: float = 0.0
    sent_rate: float = 0.0


@attrs.frozen
class Seen:
    """One connection at an evaluation.

    Attributes:
        best_rtt: the lowest of its life.
        has_carried: it has had streams.
        age: seconds since it joined.
    """

    connection_id: str
    report: Report
    best_rtt: float | None = None
    has_carried: bool = False
    age: float = 0.0


@attrs.frozen(kw_only=True)
class Record:
    """One evaluation: what was seen, and what came of it.

    Attributes:
        reason: for the decision; of a rejection, what spoke against it.
        wanted: of a rejection, what spoke for it.
    """

    at: float
    decision: Decision
    reason: Reason
    wanted: Reason | None
    connections: int
    ceiling: int
    seen: tuple[Seen, ...]


def pressure(seen: Sequence[Seen], config: ConnectionsConfig) -> Reason | None:
    """What speaks for another connection, if anything does."""
    reports = [one.report for one in seen]
    if any(report.active_streams >= config.high_watermark for report in reports):
        return Reason.HIGH_STREAMS
    if any(report.queue_pressure >= HIGH_PRESSURE for report in reports):
        return Reason.QUEUE_PRESSURE
    if any(report.queue_wait >= HIGH_QUEUE_WAIT or _has_risen(one) for one, report in zip(seen, reports, strict=True)):
        return Reason.SEND_LATENCY
    suffering = [one for one in seen if one.report.transport_errors and one.has_carried]
    if suffering and len(suffering) < len(seen):  # with all of them in trouble the way is broken, not narrow
        return Reason.CONTENTION
    return None


def _has_risen(one: Seen) -> bool:
    rtt, best = one.report.rtt, one.best_rtt
    return rtt is not None and best is not None and rtt >= max(HIGH_RTT, RISEN_RTT * best)


def leaves_room(seen: Sequence[Seen], config: ConnectionsConfig) -> bool:
    """Whether one connection fewer would still be far from wanting one more."""
    total = sum(one.report.active_streams for one in seen)
    return 2 * total < config.high_watermark * (len(seen) - 1)


class FlapBudget:
    """How often the direction may change. It is down that is forbidden: too many connections harm less."""

    def __init__(self) -> None:
        self._last: Decision | None = None
        self._reversals: deque[float] = deque()
        self._frozen_until = 0.0

    def may_go_down(self, now: float) -> bool:
        """Whether there is room for this change of direction, and for the one back that may have to follow it."""
        if now < self._frozen_until:
            return False
        self._forget(now)
        if self._last is Decision.SCALE_UP and len(self._reversals) + 2 > MAX_REVERSALS:
            self._frozen_until = now + FLAP_INTERVAL
            return False
        return True

    def went(self, decision: Decision, now: float) -> None:
        if self._last not in (None, decision):
            self._reversals.append(now)
        self._last = decision

    def is_frozen(self, now: float) -> bool:
        return now < self._frozen_until

    def _forget(self, now: float) -> None:
        while self._reversals and self._reversals[0] <= now - FLAP_INTERVAL:
            self._reversals.popleft()


class Benefit:
    """Whether the last connection helped: bytes wait less, or more of them leave. While they do not, the next is waited
    for twice as long, and so on.
    """

    def __init__(self) -> None:
        self.patience = 1
        self._before: float | None = None
        self._rate_before = 0.0
        self._left = 0

    def begin(self, seen: Sequence[Seen]) -> None:
        """A connection is being added, for what was seen."""
        self._before, self._rate_before = _wait(seen), _rate(seen)
        self._left = BENEFIT_EVALUATIONS

    def forget(self) -> None:
        """A connection was taken away: what it did not help against is over."""
        self.patience, self._before = 1, None

    def look(self, seen: Sequence[Seen], joined: bool) -> bool:
        """One more evaluation. Returns whether it has just turned out that it did not help.

        Args:
            joined: the connection is there.
        """
        if self._before is None or not joined:
            return False
        self._left -= 1
        if self._left > 0:
            return False
        before, self._before = self._before, None
        waits_less, more_leaves = _wait(seen) <= BENEFIT * before, BENEFIT * _rate(seen) > self._rate_before
        helped = before < MIN_WAIT or waits_less or more_leaves
        self.patience = 1 if helped else min(2 * self.patience, MAX_PATIENCE)
        return not helped


def _wait(seen: Sequence[Seen]) -> float:
    return max((one.report.queue_wait for one in seen), default=0.0)


def _rate(seen: Sequence[Seen]) -> float:
    return sum(one.report.sent_rate for one in seen)
