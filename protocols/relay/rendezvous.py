"""Whether a circuit is spliced or goes over streams, sans-IO: decided once, by what happens first.

Two connections have to come, each with the ticket of its end. Nothing of the circuit is sent before, so that either way
of carrying it begins at its first byte.
"""

import enum

from agentmesh.errors import LocalProtocolError
from agentmesh.protocols.relay.tickets import Side


class State(enum.Enum):
    OPEN = "nobody has come"
    NEAR = "near has come"
    FAR = "far has come"
    SPLICED = "spliced"
    STREAMED = "over streams"
    BROKEN = "broken"


class Input(enum.Enum):
    """What may happen. The values of those that lead to streams name them in statistics."""

    NEAR = "near comes"
    FAR = "far comes"
    UNTAKEN = "untaken"  # the far end does not take the offer: it knows of no such thing, or has no way to come
    DECLINED = "declined"  # an end says that it cannot come after all
    LEFT = "left"  # a connection ended, or spoke before its time
    TIMEOUT = "timeout"


FALLBACKS = (Input.UNTAKEN, Input.DECLINED, Input.LEFT, Input.TIMEOUT)

# None: cannot be, as a ticket is good once and a decision spoils it. Whoever was told that the circuit is spliced and
# then says that he cannot come has broken it.
_OPEN, _NEAR, _FAR, _SPLI, _STRE, _BROK = State
# fmt: off
ROWS: dict[State, tuple[State | None, ...]] = {
    #       NEAR    FAR    UNTAKEN DECLINED LEFT   TIMEOUT
    _OPEN: (_NEAR,  _FAR,  _STRE,  _STRE,   _STRE, _STRE),
    _NEAR: (None,   _SPLI, _STRE,  _STRE,   _STRE, _STRE),
    _FAR:  (_SPLI,  None,  _STRE,  _STRE,   _STRE, _STRE),
    _SPLI: (None,   None,  _BROK,  _BROK,   _BROK, _SPLI),
    _STRE: (None,   None,  _STRE,  _STRE,   _STRE, _STRE),
    _BROK: (None,   None,  _BROK,  _BROK,   _BROK, _BROK),
}
# fmt: on
TRANSITIONS = {(state, got): to for state, row in ROWS.items() for got, to in zip(Input, row, strict=True)}
COMES = {Side.NEAR: Input.NEAR, Side.FAR: Input.FAR}


class Rendezvous:
    """Two ends on their way.

    Attributes:
        state: how it stands.
        fallback: what made it streams, if that is what it is.
    """

    def __init__(self) -> None:
        self.state = State.OPEN
        self.fallback: Input | None = None

    def comes(self, side: Side) -> None:
        """The connection of an end has come. LocalProtocolError when it had, or that is no longer asked."""
        self.receive(COMES[side])

    def receive(self, got: Input) -> None:
        """Something has happened. After the decision it can only break the circuit."""
        after = TRANSITIONS[self.state, got]
        if after is None:
            raise LocalProtocolError(f"{got.value}: {self.state.value}")
        if after is State.STREAMED and self.state is not State.STREAMED:
            self.fallback = got
        self.state = after

    @property
    def is_decided(self) -> bool:
        return self.state in (State.SPLICED, State.STREAMED, State.BROKEN)
