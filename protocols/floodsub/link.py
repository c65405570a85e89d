"""One peer, and the two streams between it and us: it talks on the one that it opened, we on the one that we did.

A link begins with either stream and ends with either. What is to be sent waits in the link's outbox until our stream
can take it; a peer that is too slow for that loses the link, and nobody waits for it.
"""

import enum
from collections import deque

import attrs

from agentmesh.errors import ErrorCode, LocalProtocolError
from agentmesh.protocols.floodsub.events import CutReason, Role
from agentmesh.types import PeerId
from agentmesh.wire.framing import FrameReader


class State(enum.Enum):
    IDLE = "idle"
    HEARING = "hearing"  # its stream is there
    TELLING = "telling"  # ours is
    JOINED = "joined"  # both are
    GONE = "gone"


class Input(enum.Enum):
    HEAR = "hear"
    TELL = "tell"
    RPC = "an RPC"
    END = "the end of a stream"
    CUT = "cut"


_IDLE, _HEAR, _TELL, _JOIN, _GONE = State
# fmt: off
# None: our caller's mistake. What comes behind the end is not looked at.
ROWS: dict[State, tuple[State | None, ...]] = {
    #       HEAR    TELL   RPC    END    CUT
    _IDLE: (_HEAR, _TELL,  None,  _GONE, _GONE),
    _HEAR: (None,  _JOIN,  _HEAR, _GONE, _GONE),
    _TELL: (_JOIN, None,   None,  _GONE, _GONE),
    _JOIN: (None,  None,   _JOIN, _GONE, _GONE),
    _GONE: (None,  None,   _GONE, _GONE, _GONE),
}
# fmt: on
TRANSITIONS = {(state, got): to for state, row in ROWS.items() for got, to in zip(Input, row, strict=True)}


class Outbox:
    """Frames that wait for a peer to take them.

    Args:
        max_messages, max_bytes: how much may wait.
    """

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._frames: deque[bytes] = deque()
        self._size = 0

    def push(self, frame: bytes) -> bool:
        """Queue a frame; False when there is no room for it."""
        if len(self._frames) >= self._max_messages or self._size + len(frame) > self._max_bytes:
            return False
        self._frames.append(frame)
        self._size += len(frame)
        return True

    def take(self, max_bytes: int) -> bytes:
        """The oldest frames, as many as fit in `max_bytes`, at least one; b"" when none waits."""
        if len(self._frames) < 2:  # as nearly always
            self._size = 0
            return self._frames.popleft() if self._frames else b""
        taken = [self._frames.popleft()]
        size = len(taken[0])
        while self._frames and size + len(self._frames[0]) <= max_bytes:
            size += len(self._frames[0])
            taken.append(self._frames.popleft())
        self._size -= size
        return b"".join(taken)

    def clear(self) -> None:
        self._frames.clear()
        self._size = 0

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def bytes(self) -> int:
        """How many bytes wait."""
        return self._size


@attrs.define(eq=False)
class Link:
    """A link.

    Attributes:
        number: its name among all links that there were.
        peer: who is at the other end.
        role: how the peer takes part.
        outbox: what waits to be sent.
        reader: what has come and is no whole RPC yet.
        state: how far it is.
        topics: what the peer subscribes to.
        refused: what it would subscribe to, and may not.
        told: what we have told it that we subscribe to.
        reason: of a link that is gone, why.
        code: and what both streams are reset with; NO_ERROR where they are closed.
    """

    number: int
    peer: PeerId
    role: Role
    outbox: Outbox
    reader: FrameReader
    state: State = State.IDLE
    topics: dict[str, None] = attrs.Factory(dict[str, None])
    refused: dict[str, None] = attrs.Factory(dict[str, None])
    told: set[str] = attrs.Factory(set[str])
    reason: CutReason = CutReason.ENDED
    code: int = ErrorCode.NO_ERROR

    @property
    def is_gone(self) -> bool:
        return self.state is State.GONE

    @property
    def is_telling(self) -> bool:
        """Whether our stream is there, or about to be."""
        return self.state in (State.TELLING, State.JOINED)

    def step(self, got: Input) -> None:
        """Raises LocalProtocolError when the state has no place for this."""
        after = TRANSITIONS[self.state, got]
        if after is None:
            raise LocalProtocolError(f"{got.value} while {self.state.value}")
        self.state = after
