"""One request, one answer, sans-IO: the side that asks (Asker) and the side that answers (Answerer).

Call order for a driver: after a command, `receive_data` or `handle_timeout`, send `data_to_send()`, then act on
`next_event()`. `receive_data(b"")` says that the peer ended its side. Both machines raise RemoteProtocolError for what
the peer did wrong and LocalProtocolError for what our caller did; after the first they are finished.
"""

import enum

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
from agentmesh.runtime.messages import OneForOne
from agentmesh.types import PeerId

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


class Answerer(OneForOne[AnswererState, AnswererInput, AnswererEvent]):
    """Waits for the request of `asker`, and answers it."""

    def __init__(self, asker: PeerId, now: float, timeout: float = REQUEST_TIMEOUT) -> None:
        super().__init__(ANSWERER_TRANSITIONS, _WAIT, _DONE, AnswererInput.ANSWER, MAX_REQUEST_BYTES)
        self.deadline = now + timeout
        self._asker = asker

    def receive_data(self, data: bytes, now: float) -> None:
        if not data:
            self._take(AnswererInput.EOF, PeerLeft())
        elif self.state is AnswererState.AWAITING:
            self._read(data, AnswererInput.REQUEST, AnswererInput.GARBAGE, self._requested)

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._take(AnswererInput.TIMEOUT, TimedOut())

    def send_answer(self, answer: Answer) -> None:
        """LocalProtocolError when no request waits for one."""
        self._send(encode_answer(answer))

    def _requested(self, frame: bytes) -> Requested:
        return Requested(decode_request(frame, self._asker))


class Asker(OneForOne[AskerState, AskerInput, AskerEvent]):
    """Asks once."""

    def __init__(self, timeout: float = ANSWER_TIMEOUT) -> None:
        super().__init__(ASKER_TRANSITIONS, _REDY, _OVER, AskerInput.ASK, MAX_ANSWER_BYTES)
        self._timeout = timeout

    def send_request(self, request: Request, now: float) -> None:
        """LocalProtocolError when something was asked already."""
        self._send(encode_request(request))
        self.deadline = now + self._timeout

    def receive_data(self, data: bytes, now: float) -> None:
        if not data:
            self._step(AskerInput.EOF)
        elif self.state is AskerState.AWAITING:
            self._read(data, AskerInput.ANSWER, AskerInput.GARBAGE, _answered)
        else:
            self._step(AskerInput.GARBAGE)

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._take(AskerInput.TIMEOUT, TimedOut())


def _answered(frame: bytes) -> Answered:
    return Answered(decode_answer(frame))
