"""The handshake, sans-IO: the side that opens (Opener) and the side that answers (Answerer).

Call order for a driver: after a command, `receive_data` or `handle_timeout`, send `data_to_send()`, then act on
`next_event()`. `receive_data(b"")` says that the peer ended its side.
"""

import enum

from agentmesh.protocols.auth.events import (
    AnswererEvent,
    CredentialShown,
    Declined,
    FrameBroken,
    OpenerEvent,
    PeerLeft,
    TimedOut,
)
from agentmesh.protocols.auth.wire import (
    MAX_FRAME_BYTES,
    Answer,
    decode_answer,
    decode_frame_message,
    encode_answer,
    encode_frame_message,
)
from agentmesh.runtime.messages import OneForOne

AUTH_TIMEOUT = 10.0  # seconds from the start until the peer's message is there


class AnswererState(enum.Enum):
    AWAITING = "awaiting a credential"
    VERIFYING = "verifying"
    FINISHED = "finished"


class AnswererInput(enum.Enum):
    FRAME = "a frame"
    GARBAGE = "garbage"
    EOF = "end of stream"
    TIMEOUT = "timeout"
    ANSWER = "send_answer"


class OpenerState(enum.Enum):
    READY = "ready"
    AWAITING = "awaiting an answer"
    FINISHED = "finished"


class OpenerInput(enum.Enum):
    SHOW = "send_credential"
    ANSWER = "an answer"
    GARBAGE = "what is no answer"
    EOF = "end of stream"
    TIMEOUT = "timeout"


_WAIT, _VRFY, _DONE = AnswererState
_REDY, _ASKD, _OVER = OpenerState
# fmt: off
# None: our caller's mistake. Bytes behind the frame mean nothing.
ANSWERER_ROWS: dict[AnswererState, tuple[AnswererState | None, ...]] = {
    #       FRAME  GARBAGE EOF    TIMEOUT ANSWER
    _WAIT: (_VRFY, _DONE,  _DONE, _DONE,  None),
    _VRFY: (_VRFY, _VRFY,  _VRFY, _VRFY,  _DONE),
    _DONE: (_DONE, _DONE,  _DONE, _DONE,  None),
}
# None: of the first input our caller's mistake, of the others the peer's.
OPENER_ROWS: dict[OpenerState, tuple[OpenerState | None, ...]] = {
    #       SHOW   ANSWER GARBAGE EOF    TIMEOUT
    _REDY: (_ASKD, None,  None,   None,  _REDY),
    _ASKD: (None,  _OVER, None,   None,  _OVER),
    _OVER: (None,  _OVER, _OVER,  _OVER, _OVER),
}
# fmt: on
ANSWERER_TRANSITIONS = {
    (state, got): to for state, row in ANSWERER_ROWS.items() for got, to in zip(AnswererInput, row, strict=True)
}
OPENER_TRANSITIONS = {
    (state, got): to for state, row in OPENER_ROWS.items() for got, to in zip(OpenerInput, row, strict=True)
}


class Answerer(OneForOne[AnswererState, AnswererInput, AnswererEvent]):
    """Waits for a credential and answers it; never raises for the peer's doings."""

    def __init__(self, now: float, timeout: float = AUTH_TIMEOUT) -> None:
        super().__init__(ANSWERER_TRANSITIONS, _WAIT, _DONE, AnswererInput.ANSWER, MAX_FRAME_BYTES)
        self.deadline = now + timeout

    def receive_data(self, data: bytes, now: float) -> None:
        if not data:
            self._take(AnswererInput.EOF, PeerLeft())
        elif self.state is AnswererState.AWAITING and not self._read(
            data, AnswererInput.FRAME, AnswererInput.GARBAGE, _shown
        ):
            self._event = FrameBroken()

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._take(AnswererInput.TIMEOUT, TimedOut())

    def send_answer(self, token: bytes) -> None:
        """Say yes, and show our own credential. LocalProtocolError when no credential waits for an answer.

        There is no way to say no: a peer that is not admitted learns nothing, the driver resets the stream.
        """
        self._send(encode_answer(Answer(True, token)))


def _shown(frame: bytes) -> CredentialShown:
    return CredentialShown(decode_frame_message(frame))


class Opener(OneForOne[OpenerState, OpenerInput, OpenerEvent]):
    """Shows our credential and waits for the peer's.

    `receive_data` raises RemoteProtocolError when the peer broke the protocol; the machine is finished then.
    """

    def __init__(self, timeout: float = AUTH_TIMEOUT) -> None:
        super().__init__(OPENER_TRANSITIONS, _REDY, _OVER, OpenerInput.SHOW, MAX_FRAME_BYTES)
        self._timeout = timeout

    def send_credential(self, token: bytes, now: float) -> None:
        """LocalProtocolError when one was sent already."""
        self._send(encode_frame_message(token))
        self.deadline = now + self._timeout

    def receive_data(self, data: bytes, now: float) -> None:
        if not data:
            self._step(OpenerInput.EOF)
        elif self.state is OpenerState.AWAITING:
            self._read(data, OpenerInput.ANSWER, OpenerInput.GARBAGE, _answered)
        else:
            self._step(OpenerInput.GARBAGE)

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._take(OpenerInput.TIMEOUT, TimedOut())


def _answered(frame: bytes) -> CredentialShown | Declined:
    answer = decode_answer(frame)
    return CredentialShown(answer.token) if answer.success else Declined(answer.error)
