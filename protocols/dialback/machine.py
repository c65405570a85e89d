"""The dial-back, sans-IO: the member that asks (Asker) and the router that answers (Answerer).

Call order for a driver: after a command, `receive_data` or `handle_timeout`, send `data_to_send()`, then act on
`next_event()`. `receive_data(b"")` says that the peer ended its side.
"""

import enum
import math
from collections.abc import Sequence

from agentmesh.errors import LocalProtocolError, RemoteProtocolError
from agentmesh.protocols.dialback.eligible import stands_for
from agentmesh.protocols.dialback.events import Answered, AnswererEvent, Asked, AskerEvent, PeerLeft, TimedOut
from agentmesh.protocols.dialback.wire import (
    MAX_MESSAGE_BYTES,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from agentmesh.types import Address
from agentmesh.wire.framing import FrameReader, encode_frame

REQUEST_TIMEOUT = 5.0  # seconds in which a request has to come
ANSWER_TIMEOUT = 15.0  # seconds that a member waits: the router dials meanwhile


class AskerState(enum.Enum):
    READY = "ready"
    WAITING = "waiting for the answer"
    FINISHED = "finished"


class AskerInput(enum.Enum):
    SEND = "send_request"
    ANSWER = "an answer"
    GARBAGE = "what is no answer"
    EOF = "end of stream"
    TIMEOUT = "timeout"


class AnswererState(enum.Enum):
    AWAITING = "awaiting a request"
    DIALLING = "dialling"
    FINISHED = "finished"


class AnswererInput(enum.Enum):
    SEND = "send_response"
    REQUEST = "a request"
    GARBAGE = "what is no request"
    EOF = "end of stream"
    TIMEOUT = "timeout"


_REDY, _WAIT, _OVER = AskerState
_AWTG, _DIAL, _DONE = AnswererState
# fmt: off
# None: of the first input our caller's mistake, of the others the peer's. Bytes behind a message mean nothing.
ASKER_ROWS: dict[AskerState, tuple[AskerState | None, ...]] = {
    #       SEND   ANSWER GARBAGE EOF    TIMEOUT
    _REDY: (_WAIT, None,  None,   _OVER, _REDY),
    _WAIT: (None,  _OVER, None,   _OVER, _OVER),
    _OVER: (None,  _OVER, _OVER,  _OVER, _OVER),
}
ANSWERER_ROWS: dict[AnswererState, tuple[AnswererState | None, ...]] = {
    #       SEND   REQUEST GARBAGE EOF    TIMEOUT
    _AWTG: (None,  _DIAL,  None,   _DONE, _DONE),
    _DIAL: (_DONE, _DIAL,  _DIAL,  _DIAL, _DIAL),
    _DONE: (None,  _DONE,  _DONE,  _DONE, _DONE),
}
# fmt: on
ASKER_TRANSITIONS = {(s, got): to for s, row in ASKER_ROWS.items() for got, to in zip(AskerInput, row, strict=True)}
ANSWERER_TRANSITIONS = {
    (s, got): to for s, row in ANSWERER_ROWS.items() for got, to in zip(AnswererInput, row, strict=True)
}


class Asker:
    """Asks once, and takes one answer.

    `receive_data` raises RemoteProtocolError for what is none, or is no answer to what was asked; the machine is
    finished then.
    """

    def __init__(self, timeout: float = ANSWER_TIMEOUT) -> None:
        self.state = AskerState.READY
        self.deadline = math.inf
        self._timeout = timeout
        self._reader = FrameReader(MAX_MESSAGE_BYTES)
        self._asked: tuple[Address, ...] = ()
        self._out = b""
        self._event: AskerEvent | None = None

    def send_request(self, addresses: Sequence[Address], now: float) -> None:
        """Ask for these. LocalProtocolError when something was asked already."""
        self._step(AskerInput.SEND)
        self._asked = tuple(addresses)
        self._out = encode_frame(encode_request(addresses))
        self.deadline = now + self._timeout

    def receive_data(self, data: bytes, now: float) -> None:
        if not data:
            self._take(AskerInput.EOF, PeerLeft())
        elif self.state is AskerState.READY:
            self._step(AskerInput.GARBAGE)
            raise RemoteProtocolError("an answer before the request")
        elif self.state is AskerState.WAITING:
            self._reader.receive_data(data)
            self._read()

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._take(AskerInput.TIMEOUT, TimedOut())

    def data_to_send(self) -> bytes:
        out, self._out = self._out, b""
        return out

    def next_event(self) -> AskerEvent | None:
        event, self._event = self._event, None
        return event

    def _read(self) -> None:
        try:
            frame = self._reader.next_frame()
            found = None if frame is None else self._answer_in(frame)
        except RemoteProtocolError:
            self._step(AskerInput.GARBAGE)
            raise
        if found is not None:
            self._take(AskerInput.ANSWER, Answered(found))

    def _answer_in(self, frame: bytes) -> tuple[Address, ...]:
        found = decode_response(frame)
        if not all(any(stands_for(asked, address) for asked in self._asked) for address in found):
            raise RemoteProtocolError("the router reached an address that it was not asked for")
        return found

    def _take(self, got: AskerInput, event: AskerEvent) -> None:
        if self.state is not AskerState.FINISHED:
            self._event = event
        self._step(got)

    def _step(self, got: AskerInput) -> None:
        was, after = self.state, ASKER_TRANSITIONS[self.state, got]
        if after is None and got is AskerInput.SEND:
            raise LocalProtocolError(f"{got.value} while {was.value}")
        self.state = after or AskerState.FINISHED
        self.deadline = math.inf  # a request that is sent sets another


class Answerer:
    """Takes one request, and answers it when the addresses have been dialled.

    `receive_data` raises RemoteProtocolError for what is no request; the machine is finished then.
    """

    def __init__(self, now: float, timeout: float = REQUEST_TIMEOUT) -> None:
        self.state = AnswererState.AWAITING
        self.deadline = now + timeout
        self._reader = FrameReader(MAX_MESSAGE_BYTES)
        self._out = b""
        self._event: AnswererEvent | None = None

    def send_response(self, addresses: Sequence[Address]) -> None:
        """Where the member was reached. LocalProtocolError when nothing was asked, or this was answered."""
        self._step(AnswererInput.SEND)
        self._out = encode_frame(encode_response(addresses))

    def receive_data(self, data: bytes, now: float) -> None:
        if not data:
            self._take(AnswererInput.EOF, PeerLeft())
        elif self.state is AnswererState.AWAITING:
            self._reader.receive_data(data)
            self._read()

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._take(AnswererInput.TIMEOUT, TimedOut())

    def data_to_send(self) -> bytes:
        out, self._out = self._out, b""
        return out

    def next_event(self) -> AnswererEvent | None:
        event, self._event = self._event, None
        return event

    def _read(self) -> None:
        try:
            frame = self._reader.next_frame()
            addresses = None if frame is None else decode_request(frame)
        except RemoteProtocolError:
            self._step(AnswererInput.GARBAGE)
            raise
        if addresses is not None:
            self._take(AnswererInput.REQUEST, Asked(addresses))

    def _take(self, got: AnswererInput, event: AnswererEvent) -> None:
        if self.state is AnswererState.AWAITING:
            self._event = event
        self._step(got)

    def _step(self, got: AnswererInput) -> None:
        was, after = self.state, ANSWERER_TRANSITIONS[self.state, got]
        if after is None and got is AnswererInput.SEND:
            raise LocalProtocolError(f"{got.value} while {was.value}")
        self.state = after or AnswererState.FINISHED
        self.deadline = math.inf
