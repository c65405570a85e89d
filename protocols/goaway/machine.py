"""The go-away, sans-IO: the router that sends it (Sender) and the member that takes it (Listener).

Call order for a driver: after a command, `receive_data` or `handle_timeout`, send `data_to_send()`, then act on
`next_event()`. `receive_data(b"")` says that the peer ended its side. The sender ends its own side behind the message.
"""

import enum
import math

from agentmesh.errors import LocalProtocolError, RemoteProtocolError
from agentmesh.protocols.goaway.events import (
    Acknowledged,
    GoAway,
    GoAwayReceived,
    ListenerEvent,
    PeerLeft,
    SenderEvent,
    TimedOut,
)
from agentmesh.protocols.goaway.wire import MAX_MESSAGE_BYTES, decode_goaway, encode_goaway
from agentmesh.wire.framing import FrameReader, encode_frame

GOAWAY_TIMEOUT = 5.0  # seconds, of either side


class SenderState(enum.Enum):
    READY = "ready"
    WAITING = "waiting for the member to read it"
    FINISHED = "finished"


class SenderInput(enum.Enum):
    SEND = "send_goaway"
    DATA = "data"
    EOF = "end of stream"
    TIMEOUT = "timeout"


class ListenerState(enum.Enum):
    AWAITING = "awaiting a message"
    FINISHED = "finished"


class ListenerInput(enum.Enum):
    MESSAGE = "a message"
    GARBAGE = "what is no message"
    EOF = "end of stream"
    TIMEOUT = "timeout"


_REDY, _WAIT, _DONE = SenderState
_AWTG, _OVER = ListenerState
# fmt: off
# None: of the first input our caller's mistake, of the others the peer's.
SENDER_ROWS: dict[SenderState, tuple[SenderState | None, ...]] = {
    #       SEND   DATA   EOF    TIMEOUT
    _REDY: (_WAIT, None,  None,  _REDY),
    _WAIT: (None,  None,  _DONE, _DONE),
    _DONE: (None,  _DONE, _DONE, _DONE),
}
# None: the router broke the protocol. Bytes behind the message mean nothing.
LISTENER_ROWS: dict[ListenerState, tuple[ListenerState | None, ...]] = {
    #       MESSAGE GARBAGE EOF    TIMEOUT
    _AWTG: (_OVER,  None,   _OVER, _OVER),
    _OVER: (_OVER,  _OVER,  _OVER, _OVER),
}
# fmt: on
SENDER_TRANSITIONS = {(s, got): to for s, row in SENDER_ROWS.items() for got, to in zip(SenderInput, row, strict=True)}
LISTENER_TRANSITIONS = {
    (s, got): to for s, row in LISTENER_ROWS.items() for got, to in zip(ListenerInput, row, strict=True)
}


class Sender:
    """Says it once, and waits until it has been read.

    `receive_data` raises RemoteProtocolError when the peer says anything; the machine is finished then.
    """

    def __init__(self, timeout: float = GOAWAY_TIMEOUT) -> None:
        self.state = SenderState.READY
        self.deadline = math.inf
        self._timeout = timeout
        self._out = b""
        self._event: SenderEvent | None = None

    def send_goaway(self, goaway: GoAway, now: float) -> None:
        """LocalProtocolError when one was sent already."""
        self._step(SenderInput.SEND)
        self._out = encode_frame(encode_goaway(goaway))
        self.deadline = now + self._timeout

    def receive_data(self, data: bytes, now: float) -> None:
        was = self.state
        self._step(SenderInput.DATA if data else SenderInput.EOF)
        if was is SenderState.WAITING:
            self._event = Acknowledged()

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._step(SenderInput.TIMEOUT)
            self._event = TimedOut()

    def data_to_send(self) -> bytes:
        out, self._out = self._out, b""
        return out

    def next_event(self) -> SenderEvent | None:
        event, self._event = self._event, None
        return event

    def _step(self, got: SenderInput) -> None:
        was, after = self.state, SENDER_TRANSITIONS[self.state, got]
        if after is None and got is SenderInput.SEND:
            raise LocalProtocolError(f"{got.value} while {was.value}")
        self.state = after or SenderState.FINISHED
        if self.state is SenderState.FINISHED:
            self.deadline = math.inf
        if after is None:
            raise RemoteProtocolError(f"{got.value} while {was.value}")


class Listener:
    """Takes one message.

    `receive_data` raises RemoteProtocolError for what is none; the machine is finished then.
    """

    def __init__(self, now: float, timeout: float = GOAWAY_TIMEOUT) -> None:
        self.state = ListenerState.AWAITING
        self.deadline = now + timeout
        self._reader = FrameReader(MAX_MESSAGE_BYTES)
        self._event: ListenerEvent | None = None

    def receive_data(self, data: bytes, now: float) -> None:
        if not data:
            self._take(ListenerInput.EOF, PeerLeft())
        elif self.state is ListenerState.AWAITING:
            self._reader.receive_data(data)
            self._read()

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._take(ListenerInput.TIMEOUT, TimedOut())

    def data_to_send(self) -> bytes:
        """Nothing, ever: the end of its side is the member's answer."""
        return b""

    def next_event(self) -> ListenerEvent | None:
        event, self._event = self._event, None
        return event

    def _read(self) -> None:
        try:
            frame = self._reader.next_frame()
            goaway = None if frame is None else decode_goaway(frame)
        except RemoteProtocolError:
            self._step(ListenerInput.GARBAGE)
            raise
        if goaway is not None:
            self._take(ListenerInput.MESSAGE, GoAwayReceived(goaway))

    def _take(self, got: ListenerInput, event: ListenerEvent) -> None:
        if self.state is ListenerState.AWAITING:
            self._event = event
        self._step(got)

    def _step(self, got: ListenerInput) -> None:
        self.state = LISTENER_TRANSITIONS[self.state, got] or ListenerState.FINISHED
        self.deadline = math.inf
