"""The dial-back, sans-IO: the member that asks (Asker) and the router that answers (Answerer).

Call order for a driver: after a command, `receive_data` or `handle_timeout`, send `data_to_send()`, then act on
`next_event()`. `receive_data(b"")` says that the peer ended its side.
"""

import enum
from collections.abc import Sequence

from agentmesh.errors import RemoteProtocolError
from agentmesh.protocols.dialback.eligible import stands_for
from agentmesh.protocols.dialback.events import Answered, AnswererEvent, Asked, AskerEvent, PeerLeft, TimedOut
from agentmesh.protocols.dialback.wire import (
    MAX_MESSAGE_BYTES,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from agentmesh.runtime.messages import OneForOne
from agentmesh.types import Address

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


class Asker(OneForOne[AskerState, AskerInput, AskerEvent]):
    """Asks once, and takes one answer.

    `receive_data` raises RemoteProtocolError for what is none, or is no answer to what was asked; the machine is
    finished then.
    """

    def __init__(self, timeout: float = ANSWER_TIMEOUT) -> None:
        super().__init__(ASKER_TRANSITIONS, _REDY, _OVER, AskerInput.SEND, MAX_MESSAGE_BYTES)
        self._timeout = timeout
        self._asked: tuple[Address, ...] = ()

    def send_request(self, addresses: Sequence[Address], now: float) -> None:
        """Ask for these. LocalProtocolError when something was asked already."""
        self._send(encode_request(addresses))
        self._asked = tuple(addresses)
        self.deadline = now + self._timeout

    def receive_data(self, data: bytes, now: float) -> None:
        if not data:
            self._take(AskerInput.EOF, PeerLeft())
        elif self.state is AskerState.READY:
            self._step(AskerInput.GARBAGE, RemoteProtocolError("an answer before the request"))
        elif self.state is AskerState.WAITING:
            self._read(data, AskerInput.ANSWER, AskerInput.GARBAGE, self._answered)

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._take(AskerInput.TIMEOUT, TimedOut())

    def _answered(self, frame: bytes) -> Answered:
        found = decode_response(frame)
        if not all(any(stands_for(asked, address) for asked in self._asked) for address in found):
            raise RemoteProtocolError("the router reached an address that it was not asked for")
        return Answered(found)


class Answerer(OneForOne[AnswererState, AnswererInput, AnswererEvent]):
    """Takes one request, and answers it when the addresses have been dialled.

    `receive_data` raises RemoteProtocolError for what is no request; the machine is finished then.
    """

    def __init__(self, now: float, timeout: float = REQUEST_TIMEOUT) -> None:
        super().__init__(ANSWERER_TRANSITIONS, _AWTG, _DONE, AnswererInput.SEND, MAX_MESSAGE_BYTES)
        self.deadline = now + timeout

    def send_response(self, addresses: Sequence[Address]) -> None:
        """Where the member was reached. LocalProtocolError when nothing was asked, or this was answered."""
        self._send(encode_response(addresses))

    def receive_data(self, data: bytes, now: float) -> None:
        if not data:
            self._take(AnswererInput.EOF, PeerLeft())
        elif self.state is AnswererState.AWAITING:
            self._read(data, AnswererInput.REQUEST, AnswererInput.GARBAGE, _asked)

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._take(AnswererInput.TIMEOUT, TimedOut())


def _asked(frame: bytes) -> Asked:
    return Asked(decode_request(frame))
