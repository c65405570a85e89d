"""The side that asks, of hop and of stop alike: one request, one answer, then perhaps the bytes of a circuit.

Bytes behind the answer are kept for `trailing`: the far end of a circuit may be the first to speak.
"""

import abc
import enum
import math

from agentmesh.errors import LocalProtocolError, RemoteProtocolError
from agentmesh.protocols.relay.events import CircuitOpened, DialerEvent, Refused, Status, TimedOut
from agentmesh.protocols.relay.wire import MAX_MESSAGE_BYTES, ConnectMessage, ReserveMessage, StatusMessage
from agentmesh.wire.framing import FrameReader, encode_frame

ANSWER_TIMEOUT = 10.0  # seconds


class State(enum.Enum):
    READY = "ready"
    RESERVING = "reserving"
    CONNECTING = "connecting"
    CIRCUIT = "a circuit"
    FINISHED = "finished"


class Input(enum.Enum):
    RESERVE = "send_reserve"
    CONNECT = "send_connect"
    OK = "STATUS OK"
    REFUSED = "STATUS of a refusal"
    GARBAGE = "what is no answer"
    EOF = "end of stream"
    TIMEOUT = "timeout"


COMMANDS = frozenset({Input.RESERVE, Input.CONNECT})

# None: of a command, our caller's mistake; of the others, the peer's.
_REDY, _RESV, _CONN, _CIRC, _DONE = State
# fmt: off
ROWS: dict[State, tuple[State | None, ...]] = {
    #       RESERVE CONNECT OK     REFUSED GARBAGE EOF    TIMEOUT
    _REDY: (_RESV,  _CONN,  None,  None,   None,   None,  _REDY),
    _RESV: (None,   None,   _DONE, _DONE,  None,   None,  _DONE),
    _CONN: (None,   None,   _CIRC, _DONE,  None,   None,  _DONE),
    _CIRC: (None,   None,   None,  None,   None,   _CIRC, _CIRC),
    _DONE: (None,   None,   None,  None,   None,   _DONE, _DONE),
}
# fmt: on
TRANSITIONS = {(state, got): to for state, row in ROWS.items() for got, to in zip(Input, row, strict=True)}


class Dialer(abc.ABC):
    """One exchange. Its commands raise LocalProtocolError when something was asked already."""

    def __init__(self, timeout: float = ANSWER_TIMEOUT) -> None:
        self.state = State.READY
        self.deadline = math.inf
        self._timeout = timeout
        self._reader = FrameReader(MAX_MESSAGE_BYTES)
        self._out = b""
        self._event: DialerEvent | None = None

    def receive_data(self, data: bytes, now: float) -> None:
        """Take bytes; b"" when the peer has ended its side.

        Raises:
            RemoteProtocolError: they do not answer what was asked. The machine is finished.
        """
        if not data:
            self._step(Input.EOF)
            return
        if self.state in (State.READY, State.FINISHED):
            self._step(Input.GARBAGE)
        self._reader.receive_data(data)
        if self.state is not State.CIRCUIT:
            self._read()

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._step(Input.TIMEOUT)
            self._event = TimedOut()

    def data_to_send(self) -> bytes:
        out, self._out = self._out, b""
        return out

    def next_event(self) -> DialerEvent | None:
        event, self._event = self._event, None
        return event

    def trailing(self) -> bytes:
        """What came behind the answer; given once."""
        return self._reader.trailing()

    @abc.abstractmethod
    def _decode(self, frame: bytes) -> ReserveMessage | ConnectMessage | StatusMessage:
        """Raises RemoteProtocolError."""

    def _read(self) -> None:
        try:
            frame = self._reader.next_frame()
            event = None if frame is None else self._event_of(self._decode(frame))
        except RemoteProtocolError as exc:
            self._step(Input.GARBAGE, exc)
        else:
            if event is not None:
                self._step(Input.REFUSED if isinstance(event, Refused) else Input.OK)
                self._event = event

    def _event_of(self, message: ReserveMessage | ConnectMessage | StatusMessage) -> DialerEvent:
        if not isinstance(message, StatusMessage):
            raise RemoteProtocolError("a request where an answer was due")
        if message.status != Status.OK:
            return Refused(message.status)
        if self.state is State.CONNECTING:
            return CircuitOpened(message.limits, message.data_path, message.offer)
        if message.reservation is None:
            raise RemoteProtocolError("a reservation granted, but none sent")
        return message.reservation

    def _command(self, got: Input, message: bytes, now: float) -> None:
        self._step(got)
        self._out += encode_frame(message)
        self.deadline = now + self._timeout

    def _step(self, got: Input, cause: RemoteProtocolError | None = None) -> None:
        was, after = self.state, TRANSITIONS[self.state, got]
        if after is None and got in COMMANDS:
            raise LocalProtocolError(f"{got.value} while {was.value}")
        self.state, self.deadline = after or State.FINISHED, math.inf
        if after is None:
            raise cause or RemoteProtocolError(f"{got.value} while {was.value}")
