"""One request, one answer, sans-IO: the side that asks (Asker) and the side that answers (Answerer).

Call order for a driver: after a command, `receive_data` or `handle_timeout`, send `data_to_send()`, then act on
`next_event()`. `receive_data(b"")` says that the peer ended its side. Both machines raise RemoteProtocolError for what
the peer did wrong and LocalProtocolError for what our caller did; after the first they are finished.
"""

import enum
import math

from agentmesh.errors import LocalProtocolError, RemoteProtocolError
from agentmesh.protocols.directory.events import (
    Answer,
    Answered,
    AnswererEvent,
    AskerEvent,
    PeerLeft,
    Request,
    Requested,
    TimedOut,
)
from agentmesh.protocols.directory.wire import (
    MAX_ANSWER_BYTES,
    MAX_REQUEST_BYTES,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
)
from agentmesh.types import PeerId
from agentmesh.wire.framing import FrameReader, encode_frame

REQUEST_TIMEOUT = 5.0  # seconds from the start of a stream until its request is there
ANSWER_TIMEOUT = 5.0  # seconds from a request until its answer is there


class AnswererState(enum.Enum):
    AWAITING = "awaiting a request"
    ANSWERING = "answering"
    FINISHED = "finished"


class AnswererInput(enum.Enum):
    REQUEST = "a request"
    GARBAGE = "what is no request"
    EOF = "end of stream"
    TIMEOUT = "timeout"
    ANSWER = "send_answer"


class AskerState(enum.Enum):
    READY = "ready"
    AWAITING = "awaiting an answer"
    FINISHED = "finished"


class AskerInput(enum.Enum):
    ASK = "send_request"
    ANSWER = "an answer"
    GARBAGE = "what is no answer"
    EOF = "end of stream"
    TIMEOUT = "timeout"


_WAIT, _WORK, _DONE = AnswererState
_REDY, _ASKD, _OVER = AskerState
# fmt: off
# None: of a command, our caller's mistake; of the others, the peer's. Bytes behind the one message mean nothing.
ANSWERER_ROWS: dict[AnswererState, tuple[AnswererState | None, ...]] = {
    #       REQUEST GARBAGE EOF    TIMEOUT ANSWER
    _WAIT: (_WORK,  None,   _DONE, _DONE,  None),
    _WORK: (_WORK,  _WORK,  _WORK, _WORK,  _DONE),
    _DONE: (_DONE,  _DONE,  _DONE, _DONE,  None),
}
ASKER_ROWS: dict[AskerState, tuple[AskerState | None, ...]] = {
    #       ASK    ANSWER GARBAGE EOF    TIMEOUT
    _REDY: (_ASKD, None,  None,   None,  _REDY),
    _ASKD: (None,  _OVER, None,   None,  _OVER),
    _OVER: (None,  _OVER, _OVER,  _OVER, _OVER),
}
# fmt: on
ANSWERER_TRANSITIONS = {
    (state, got): to for state, row in ANSWERER_ROWS.items() for got, to in zip(AnswererInput, row, strict=True)
}
ASKER_TRANSITIONS = {
    (state, got): to for state, row in ASKER_ROWS.items() for got, to in zip(AskerInput, row, strict=True)
}


class Answerer:
    """Waits for the request of `asker`, and answers it."""

    def __init__(self, asker: PeerId, now: float, timeout: float = REQUEST_TIMEOUT) -> None:
        self.state = AnswererState.AWAITING
        self.deadline = now + timeout
        self._asker = asker
        self._reader = FrameReader(MAX_REQUEST_BYTES)
        self._out = b""
        self._event: AnswererEvent | None = None

    def receive_data(self, data: bytes, now: float) -> None:
        if not data:
            self._take(AnswererInput.EOF, PeerLeft())
        elif self.state is AnswererState.AWAITING:
            self._reader.receive_data(data)
            self._read()

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._take(AnswererInput.TIMEOUT, TimedOut())

    def send_answer(self, answer: Answer) -> None:
        """LocalProtocolError when no request waits for one."""
        self._step(AnswererInput.ANSWER)
        self._out = encode_frame(encode_answer(answer))

    def data_to_send(self) -> bytes:
        out, self._out = self._out, b""
        return out

    def next_event(self) -> AnswererEvent | None:
        event, self._event = self._event, None
        return event

    def _read(self) -> None:
        try:
            frame = self._reader.next_frame()
            request = None if frame is None else decode_request(frame, self._asker)
        except RemoteProtocolError as exc:
            self._step(AnswererInput.GARBAGE, exc)
        else:
            if request is not None:
                self._take(AnswererInput.REQUEST, Requested(request))

    def _take(self, got: AnswererInput, event: AnswererEvent) -> None:
        if self.state is AnswererState.AWAITING:
            self._event = event
        self._step(got)

    def _step(self, got: AnswererInput, cause: RemoteProtocolError | None = None) -> None:
        was, after = self.state, ANSWERER_TRANSITIONS[self.state, got]
        if after is None and cause is None:
            raise LocalProtocolError(f"{got.value} while {was.value}")
        self.state, self.deadline = after or AnswererState.FINISHED, math.inf
        if after is None and cause is not None:
            raise cause


class Asker:
    """Asks once."""

    def __init__(self, timeout: float = ANSWER_TIMEOUT) -> None:
        self.state = AskerState.READY
        self.deadline = math.inf
        self._timeout = timeout
        self._reader = FrameReader(MAX_ANSWER_BYTES)
        self._out = b""
        self._event: AskerEvent | None = None

    def send_request(self, request: Request, now: float) -> None:
        """LocalProtocolError when something was asked already."""
        self._step(AskerInput.ASK)
        self._out = encode_frame(encode_request(request))
        self.deadline = now + self._timeout

    def receive_data(self, data: bytes, now: float) -> None:
        if not data:
            self._step(AskerInput.EOF)
        elif self.state is AskerState.AWAITING:
            self._reader.receive_data(data)
            self._read()
        else:
            self._step(AskerInput.GARBAGE)

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._step(AskerInput.TIMEOUT)
            self._event = TimedOut()

    def data_to_send(self) -> bytes:
        out, self._out = self._out, b""
        return out

    def next_event(self) -> AskerEvent | None:
        event, self._event = self._event, None
        return event

    def _read(self) -> None:
        try:
            frame = self._reader.next_frame()
            answer = None if frame is None else decode_answer(frame)
        except RemoteProtocolError as exc:
            self._step(AskerInput.GARBAGE, exc)
        else:
            if answer is not None:
                self._step(AskerInput.ANSWER)
                self._event = Answered(answer)

    def _step(self, got: AskerInput, cause: RemoteProtocolError | None = None) -> None:
        was, after = self.state, ASKER_TRANSITIONS[self.state, got]
        if after is None and got is AskerInput.ASK:
            raise LocalProtocolError(f"{got.value} while {was.value}")
        self.state, self.deadline = after or AskerState.FINISHED, math.inf
        if after is None:
            raise cause or RemoteProtocolError(f"{got.value} while {was.value}")
