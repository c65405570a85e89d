"""The handshake, sans-IO: the side that opens (Opener) and the side that answers (Answerer).

Call order for a driver: after a command, `receive_data` or `handle_timeout`, send `data_to_send()`, then act on
`next_event()`. `receive_data(b"")` says that the peer ended its side.
"""

import enum
import math

from agentmesh.errors import LocalProtocolError, RemoteProtocolError
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
from agentmesh.wire.framing import FrameReader, encode_frame

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


class Answerer:
    """Waits for a credential and answers it; never raises for the peer's doings."""

    def __init__(self, now: float, timeout: float = AUTH_TIMEOUT) -> None:
        self.state = AnswererState.AWAITING
        self.deadline = now + timeout
        self._reader = FrameReader(MAX_FRAME_BYTES)
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

    def send_answer(self, token: bytes) -> None:
        """Say yes, and show our own credential. LocalProtocolError when no credential waits for an answer.

        There is no way to say no: a peer that is not admitted learns nothing, the driver resets the stream.
        """
        self._step(AnswererInput.ANSWER)
        self._out = encode_frame(encode_answer(Answer(True, token)))

    def data_to_send(self) -> bytes:
        out, self._out = self._out, b""
        return out

    def next_event(self) -> AnswererEvent | None:
        event, self._event = self._event, None
        return event

    def _read(self) -> None:
        try:
            frame = self._reader.next_frame()
            if frame is not None:
                self._take(AnswererInput.FRAME, CredentialShown(decode_frame_message(frame)))
        except RemoteProtocolError:
            self._take(AnswererInput.GARBAGE, FrameBroken())

    def _take(self, got: AnswererInput, event: AnswererEvent) -> None:
        if self.state is AnswererState.AWAITING:
            self._event = event
        self._step(got)

    def _step(self, got: AnswererInput) -> None:
        after = ANSWERER_TRANSITIONS[self.state, got]
        if after is None:
            raise LocalProtocolError(f"{got.value} while {self.state.value}")
        self.state, self.deadline = after, math.inf


class Opener:
    """Shows our credential and waits for the peer's.

    `receive_data` raises RemoteProtocolError when the peer broke the protocol; the machine is finished then.
    """

    def __init__(self, timeout: float = AUTH_TIMEOUT) -> None:
        self.state = OpenerState.READY
        self.deadline = math.inf
        self._timeout = timeout
        self._reader = FrameReader(MAX_FRAME_BYTES)
        self._out = b""
        self._event: OpenerEvent | None = None

    def send_credential(self, token: bytes, now: float) -> None:
        """LocalProtocolError when one was sent already."""
        self._step(OpenerInput.SHOW)
        self._out = encode_frame(encode_frame_message(token))
        self.deadline = now + self._timeout

    def receive_data(self, data: bytes, now: float) -> None:
        if not data:
            self._step(OpenerInput.EOF)
        elif self.state is OpenerState.AWAITING:
            self._reader.receive_data(data)
            self._read()
        else:
            self._step(OpenerInput.GARBAGE)

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._step(OpenerInput.TIMEOUT)
            self._event = TimedOut()

    def data_to_send(self) -> bytes:
        out, self._out = self._out, b""
        return out

    def next_event(self) -> OpenerEvent | None:
        event, self._event = self._event, None
        return event

    def _read(self) -> None:
        try:
            frame = self._reader.next_frame()
            answer = None if frame is None else decode_answer(frame)
        except RemoteProtocolError as exc:
            self._step(OpenerInput.GARBAGE, exc)
        else:
            if answer is not None:
                self._step(OpenerInput.ANSWER)
                self._event = CredentialShown(answer.token) if answer.success else Declined(answer.error)

    def _step(self, got: OpenerInput, cause: RemoteProtocolError | None = None) -> None:
        was, after = self.state, OPENER_TRANSITIONS[self.state, got]
        if after is None and got is OpenerInput.SHOW:
            raise LocalProtocolError(f"{got.value} while {was.value}")
        self.state, self.deadline = after or OpenerState.FINISHED, math.inf
        if after is None:
            raise cause or RemoteProtocolError(f"{got.value} while {was.value}")
