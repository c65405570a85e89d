"""How a node stands to one router: the states, what leads from one to the next, and what is remembered of it. Pure.

        choose            admitted             lost
FREE ----------> ATTACHING -------> ATTACHED ---------> SUSPECT --choose--> ATTACHING
 ^                  |  |               | lost at once      ^  |
 |                  |  | failed        v                   |  | long ago
 |                  |  +----------> WAITING ---------------+  +--> FREE
 |                  |                      its time has come
 |                  | refused
 |                  +-------------> AWAY
 | its time has come                 | ^ lost
 +-----------------------------------+ |
                  ATTACHED --------> LEAVING
                           sent away
"""

import enum
import math

import attrs

from agentmesh.control_plane.routers import RouterRecord
from agentmesh.errors import LocalProtocolError

MAX_ATTEMPTS = 6  # then the router is shunned and another takes its place
SHUN_TIME = 300.0  # seconds
LAST_RESORT_TIME = 60.0  # the same for a node to which nothing else is left


class State(enum.Enum):
    FREE = "free"
    SUSPECT = "suspect"  # free as well, but it failed or was lost: others come first
    ATTACHING = "attaching"
    ATTACHED = "attached"
    LEAVING = "leaving"  # it sent us away, and its session still lasts
    WAITING = "waiting"
    AWAY = "away"  # it has no place for us: it sent us away, or did not take us in


class Input(enum.Enum):
    CHOSEN = "chosen"
    ADMITTED = "admitted"
    FAILED = "failed"
    REFUSED = "refused"
    LOST = "lost"
    DROPPED = "lost at once"
    TIMEOUT = "timeout"
    SENT_AWAY = "sent away"


_FREE, _SUSP, _ATTG, _HELD, _LEAV, _WAIT, _AWAY = State
# fmt: off
# None: the driver misreads its own tasks.
ROWS: dict[State, tuple[State | None, ...]] = {
    #       CHOSEN ADMITTED FAILED REFUSED LOST   DROPPED TIMEOUT SENT_AWAY
    _FREE: (_ATTG, None,    None,  None,   None,  None,   None,   None),
    _SUSP: (_ATTG, None,    None,  None,   None,  None,   _FREE,  None),
    _ATTG: (None,  _HELD,   _WAIT, _AWAY,  None,  None,   None,   None),
    _HELD: (None,  None,    None,  None,   _SUSP, _WAIT,  None,   _LEAV),
    _LEAV: (None,  None,    None,  None,   _AWAY, None,   None,   None),
    _WAIT: (None,  None,    None,  None,   None,  None,   _SUSP,  None),
    _AWAY: (None,  None,    None,  None,   None,  None,   _FREE,  None),
}
# fmt: on
TRANSITIONS = {(state, got): to for state, row in ROWS.items() for got, to in zip(Input, row, strict=True)}
TAKEN = frozenset({State.ATTACHING, State.ATTACHED})  # of the places for routers that are wanted
HELD = TAKEN | {State.LEAVING}  # a task of the driver's has them
LEFT_ALONE = frozenset({State.WAITING, State.AWAY})


@attrs.define
class Standing:
    """What a catalogue knows of one router. Times are seconds on its caller's clock."""

    record: RouterRecord
    state: State = State.FREE
    failures: int = 0
    wait_until: float = math.inf  # when a state passes by itself
    attached_at: float = math.inf
    shunned_at: float = math.inf
    shunned_for: float = SHUN_TIME
    number: int = 0  # of its attachment: the order in which they came about
    listed: bool = True

    @property
    def is_shunned(self) -> bool:
        """Whether it is left alone for longer than a failure or two."""
        return self.state is State.AWAY or (self.state is State.WAITING and self.failures >= MAX_ATTEMPTS)

    @property
    def last_resort_at(self) -> float:
        """When it may be tried all the same, if it is shunned and nothing else is left."""
        return min(self.wait_until, self.shunned_at + LAST_RESORT_TIME)

    def step(self, got: Input) -> None:
        """Go on to the next state. LocalProtocolError when there is none."""
        after = TRANSITIONS[self.state, got]
        if after is None:
            raise LocalProtocolError(f"{self.record.peer}: {got.value} while {self.state.value}")
        self.state = after
        self.wait_until = self.attached_at = math.inf
