"""The side that answers, of hop and of stop alike: one request, one answer, then perhaps the bytes of a circuit.

What it cannot read it answers with a status, as the specification asks, and an event; it never raises for the peer's
doings. Bytes behind the request are kept for `trailing`: they are the circuit's first, should there be one.
"""

import abc
import enum
import math

from agentmesh.errors import LocalProtocolError, RemoteProtocolError
from agentmesh.protocols.relay.events import (
    CircuitRequested,
    ListenerEvent,
    PeerLeft,
    RequestBroken,
    ReservationRequested,
    Status,
    TimedOut,
)
from agentmesh.protocols.relay.wire import MAX_MESSAGE_BYTES, ConnectMessage, ReserveMessage, StatusMessage
from agentmesh.wire.framing import FrameReader, encode_frame

REQUEST_TIMEOUT = 10.0  # seconds


class State(enum.Enum):
    AWAITING = "awaiting a request"
    RESERVING = "reserving"
    CONNECTING = "connecting"
    CIRCUIT = "a circuit"
    FINISHED = "finished"


class Input(enum.Enum):
    RESERVE = "RESERVE"
    CONNECT = "CONNECT"
    STATUS = "STATUS"
    GARBAGE = "garbage"
    EOF = "end of stream"
    TIMEOUT = "timeout"
    GRANT = "send_reservation"
    OPEN = "send_circuit"
    REFUSE = "send_refusal"


# None: of the last three, our caller's mistake; of the others, what cannot be, as nothing behind a request is read.
_WAIT, _RESV, _CONN, _CIRC, _DONE = State
# fmt: off
ROWS: dict[State, tuple[State | None, ...]] = {
    #       RESERVE CONNECT STATUS GARBAGE EOF   TIMEOUT GRANT  OPEN   REFUSE
    _WAIT: (_RESV,  _CONN,  _DONE, _DONE,  _DONE, _DONE, None,  None,  None),
    _RESV: (None,   None,   None,  None,   _RESV, _RESV, _DONE, None,  _DONE),
    _CONN: (None,   None,   None,  None,   _CONN, _CONN, None,  _CIRC, _DONE),
    _CIRC: (None,   None,   None,  None,   _CIRC, _CIRC, None,  None,  None),
    _DONE: (None,   None,   None,  None,   _DONE, _DONE, None,  None,  None),
}
# fmt: on
TRANSITIONS = {(state, got): to for state, row in ROWS.items() for got, to in zip(Input, row, strict=True)}


class Listener(abc.ABC):
    """One exchange. `send_refusal` and the subclasses' commands raise LocalProtocolError when nothing was asked."""

    def __init__(self, now: float, timeout: float = REQUEST_TIMEOUT) -> None:
        self.state = State.AWAITING
        self.deadline = now + timeout
        self._reader = FrameReader(MAX_MESSAGE_BYTES)
        self._out = b""
        self._event: ListenerEvent | None = None

    def receive_data(self, data: bytes, now: float) -> None:
        """Take bytes; b"" when the peer has ended its side."""
        if not data:
            self._end(Input.EOF, PeerLeft())
        elif self.state is not State.FINISHED:
            self._reader.receive_data(data)
            if self.state is State.AWAITING:
                self._read()

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._end(Input.TIMEOUT, TimedOut())

    def send_refusal(self, status: Status) -> None:
        self._command(Input.REFUSE, self._encode_status(status))

    def data_to_send(self) -> bytes:
        out, self._out = self._out, b""
        return out

    def next_event(self) -> ListenerEvent | None:
        event, self._event = self._event, None
        return event

    def trailing(self) -> bytes:
        """What came behind the request; given once."""
        return self._reader.trailing()

    @abc.abstractmethod
    def _decode(self, frame: bytes) -> ReserveMessage | ConnectMessage | StatusMessage:
        """Raises RemoteProtocolError."""

    @abc.abstractmethod
    def _encode_status(self, status: Status) -> bytes: ...

    def _read(self) -> None:
        try:
            frame = self._reader.next_frame()
            if frame is None:
                return
            message = self._decode(frame)
        except RemoteProtocolError:
            self._break(Input.GARBAGE, Status.MALFORMED_MESSAGE)
            return
        match message:
            case ReserveMessage():
                self._ask(Input.RESERVE, ReservationRequested())
            case ConnectMessage(peer, limits, data_path, offer):
                self._ask(Input.CONNECT, CircuitRequested(peer, limits, data_path, offer))
            case _:
                self._break(Input.STATUS, Status.UNEXPECTED_MESSAGE)

    def _ask(self, got: Input, event: ListenerEvent) -> None:
        self._step(got)
        self._event = event

    def _break(self, got: Input, status: Status) -> None:
        self._step(got)
        self._out += encode_frame(self._encode_status(status))
        self._event = RequestBroken(status)

    def _end(self, got: Input, event: ListenerEvent) -> None:
        if self.state is State.AWAITING:
            self._event = event
        self._step(got)

    def _command(self, got: Input, message: bytes) -> None:
        self._step(got)
        self._out += encode_frame(message)

    def _step(self, got: Input) -> None:
        after = TRANSITIONS[self.state, got]
        if after is None:
            raise LocalProtocolError(f"{got.value} while {self.state.value}")
        self.state, self.deadline = after, math.inf
