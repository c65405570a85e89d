"""When to dial again, and the places that connections have at an agent."""

import enum
import math
from collections.abc import Callable

import attrs

from agentmesh.errors import LocalProtocolError
from agentmesh.pool.agent.scaling import Report
from agentmesh.protocols.pool import Ack

BASE_DELAY = 1.0  # seconds
MAX_DELAY = 30.0  # seconds
AUTH_DELAY = 60.0  # seconds: a credential that was refused is refused again
MAX_RETRY_AFTER = 300.0  # seconds that a router's word is taken for
MIN_SHARE = 0.1  # of a delay; the rest is chance
STABLE_AFTER = 30.0  # seconds that a connection has to last to say that all is well
LOOK_AGAIN = 60.0  # seconds for which all connections are at one router before another is looked for; doubling …
MAX_LOOK_AGAIN = 3600.0  # … up to this


class Failure(enum.StrEnum):
    """Why a dial came to nothing."""

    NETWORK = "network"  # nobody answered, or not in time
    AUTH = "auth"  # the credential was refused
    REFUSED = "refused"  # the router has no room, for us or at all


class Backoff:
    """How long to wait, of all places together: an outage is one outage, however many connections it cost.

    Args:
        chance: a number from 0 to 1, another each time.
    """

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._failures = 0
        self._until = -math.inf  # what fails before is part of the failure that was counted last

    def failed(self, failure: Failure, now: float, retry_after: float = 0.0) -> float:
        """Seconds to wait after a dial that failed."""
        wait = self._wait(now)
        return max(self._spread(AUTH_DELAY) if failure is Failure.AUTH else wait, self.asked(retry_after))

    def lost(self, lasted: float, now: float) -> float:
        """Seconds to wait after a connection that ended, having lasted so many."""
        if lasted >= STABLE_AFTER:
            self.is_well()
        return self._wait(now)

    def asked(self, retry_after: float) -> float:
        """Seconds that a router asked for, with as much again by chance, so that not all come at once."""
        return min(max(retry_after, 0.0), MAX_RETRY_AFTER) * (1 + self._chance())

    def is_well(self) -> None:
        """A connection has lasted."""
        self._failures, self._until = 0, -math.inf

    def _wait(self, now: float) -> float:
        is_another = now >= self._until
        self._failures = min(self._failures + is_another, 16)
        wait = self._spread(min(BASE_DELAY * 2 ** (self._failures - 1), MAX_DELAY))
        if is_another:
            self._until = now + wait
        return wait

    def _spread(self, cap: float) -> float:
        return cap * (MIN_SHARE + (1 - MIN_SHARE) * self._chance())


@attrs.define
class Search:
    """When to look for a second router, as long as all connections are at one: ever less often.

    Attributes:
        wait: seconds from one look to the next.
        at: when the next one is due.
    """

    wait: float = LOOK_AGAIN
    at: float = math.inf

    def is_due(self, at_one_router: bool, now: float) -> bool:
        if not at_one_router:
            self.wait, self.at = LOOK_AGAIN, math.inf
        elif self.at == math.inf:
            self.at = now + self.wait
        return now >= self.at

    def begun(self, now: float) -> None:
        """There was a look."""
        self.wait = min(self.wait * 2, MAX_LOOK_AGAIN)
        self.at = now + self.wait


class State(enum.Enum):
    WAITING = "waiting to dial"
    DIALING = "dialling"
    ACTIVE = "in the pool"
    DRAINING = "draining"
    GONE = "gone"


class Input(enum.Enum):
    DIAL = "dial"
    JOIN = "join"
    FAIL = "fail"  # the dial; the place stays
    LOSE = "lose"  # the connection; the place stays
    DRAIN = "drain"
    END = "end"


_WAIT, _DIAL, _ACTV, _DRAIN, _GONE = State
# fmt: off
# None: our caller's mistake.
ROWS: dict[State, tuple[State | None, ...]] = {
    #         DIAL   JOIN   FAIL   LOSE   DRAIN   END
    _WAIT:  (_DIAL, None,  None,  None,  None,   _GONE),
    _DIAL:  (None,  _ACTV, _WAIT, _WAIT, None,   _GONE),
    _ACTV:  (None,  None,  None,  _WAIT, _DRAIN, _GONE),
    _DRAIN: (None,  None,  None,  _GONE, None,   _GONE),
    _GONE:  (None,  None,  None,  None,  None,   None),
}
# fmt: on
TRANSITIONS = {(was, got): to for was, row in ROWS.items() for got, to in zip(Input, row, strict=True)}


@attrs.define(eq=False)
class Slot:
    """A place for one connection, and the connection in it.

    Attributes:
        number: in the order in which the places were made.
        at: when to dial, while it waits; when streams are out of time, while it drains.
        redials: spent on looking for another router.
        low: evaluations in a row in which it was not needed.
        is_stable: it has lasted.
    """

    number: int
    at: float = 0.0
    state: State = State.WAITING
    connection_id: str = ""
    joined_at: float = math.inf
    ack: Ack | None = None
    report: Report | None = None
    best_rtt: float | None = None
    has_carried: bool = False
    redials: int = 0
    low: int = 0
    is_stable: bool = False

    @property
    def is_counted(self) -> bool:
        """Whether it is one of the connections that the agent has or is about to have."""
        return self.state in (State.WAITING, State.DIALING, State.ACTIVE)

    def step(self, got: Input) -> None:
        """Raises LocalProtocolError when the state has no place for this."""
        after = TRANSITIONS[self.state, got]
        if after is None:
            raise LocalProtocolError(f"{got.value} while {self.state.value}")
        self.state = after

    def take(self, report: Report) -> None:
        """How it is now; errors add up until somebody has looked."""
        errors = self.report.transport_errors if self.report else 0
        self.report = attrs.evolve(report, transport_errors=report.transport_errors + errors)
        self.has_carried = self.has_carried or report.active_streams > 0
        if report.rtt is not None:
            self.best_rtt = report.rtt if self.best_rtt is None else min(self.best_rtt, report.rtt)

    def forget(self) -> None:
        """The connection is gone; what was known of it goes along."""
        self.connection_id, self.joined_at, self.ack, self.report = "", math.inf, None, None
        self.best_rtt, self.has_carried, self.low, self.is_stable = None, False, 0, False
