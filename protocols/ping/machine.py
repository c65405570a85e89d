"""Ping, sans-IO: the side that asks (Pinger) and the side that answers (Echo).

Call order for a driver: after a command, `receive_data` or `handle_timeout`, send `data_to_send()`, then act on
`next_event()`. `receive_data(b"")` says that the peer ended its side. Both machines raise RemoteProtocolError for what
the peer did wrong and LocalProtocolError for what our caller did; after the first they are finished.
"""

import enum
import math

from agentmesh.errors import LocalProtocolError, RemoteProtocolError
from agentmesh.protocols.ping.events import EchoEvent, PeerFinished, PeerIdled, PingerEvent, PingTimedOut, PongReceived
from agentmesh.protocols.ping.wire import PING_BYTES, PingReader

PONG_TIMEOUT = 10.0  # seconds
IDLE_TIMEOUT = 60.0  # seconds


class PingerState(enum.Enum):
    READY = "ready"
    WAITING = "waiting"
    FINISHED = "finished"


class PingerInput(enum.Enum):
    PING = "ping"
    PONG = "pong"
    WRONG = "wrong bytes"
    EOF = "end of stream"
    TIMEOUT = "timeout"


class EchoState(enum.Enum):
    LISTENING = "listening"
    FINISHED = "finished"


class EchoInput(enum.Enum):
    DATA = "data"
    EOF = "end of stream"
    TIMEOUT = "timeout"


# None: the side that caused the input broke the protocol.
# fmt: off
PINGER_ROWS: dict[PingerState, tuple[PingerState | None, ...]] = {
    #                      PING                 PONG                  WRONG EOF                   TIMEOUT
    PingerState.READY:    (PingerState.WAITING, None,                 None, None,                 PingerState.READY),
    PingerState.WAITING:  (None,                PingerState.FINISHED, None, None,                 PingerState.FINISHED),
    PingerState.FINISHED: (None,                None,                 None, PingerState.FINISHED, PingerState.FINISHED),
}
ECHO_ROWS: dict[EchoState, tuple[EchoState | None, ...]] = {
    #                      DATA                 EOF                 TIMEOUT
    EchoState.LISTENING:  (EchoState.LISTENING, EchoState.FINISHED, EchoState.FINISHED),
    EchoState.FINISHED:   (None,                EchoState.FINISHED, EchoState.FINISHED),
}
# fmt: on
PINGER_TRANSITIONS = {(s, got): to for s, row in PINGER_ROWS.items() for got, to in zip(PingerInput, row, strict=True)}
ECHO_TRANSITIONS = {(s, got): to for s, row in ECHO_ROWS.items() for got, to in zip(EchoInput, row, strict=True)}


class Pinger:
    """Asks once; for another ping on the same stream, take another Pinger."""

    def __init__(self, timeout: float = PONG_TIMEOUT) -> None:
        self.state = PingerState.READY
        self.deadline = math.inf
        self._timeout = timeout
        self._sent_at = 0.0
        self._payload = b""
        self._got = b""
        self._out = b""
        self._event: PingerEvent | None = None

    def send_ping(self, payload: bytes, now: float) -> None:
        """Ask, with 32 bytes that nobody can guess."""
        if len(payload) != PING_BYTES:
            raise LocalProtocolError(f"a ping is {PING_BYTES} bytes")
        self._step(PingerInput.PING)
        self._payload = self._out = payload
        self._sent_at, self.deadline = now, now + self._timeout

    def receive_data(self, data: bytes, now: float) -> None:
        if not data:
            self._step(PingerInput.EOF)
            return
        self._got += data
        if not self._payload.startswith(self._got):
            self._step(PingerInput.WRONG)
        elif len(self._got) == PING_BYTES:
            self._step(PingerInput.PONG)
            self._event = PongReceived(now - self._sent_at)

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._step(PingerInput.TIMEOUT)
            self._event = PingTimedOut()

    def data_to_send(self) -> bytes:
        out, self._out = self._out, b""
        return out

    def next_event(self) -> PingerEvent | None:
        event, self._event = self._event, None
        return event

    def _step(self, got: PingerInput) -> None:
        was, after = self.state, PINGER_TRANSITIONS[self.state, got]
        if after is None and got is PingerInput.PING:
            raise LocalProtocolError(f"a second {got.value}: the machine is {was.value}")
        self.state = after or PingerState.FINISHED
        if self.state is PingerState.FINISHED:
            self.deadline = math.inf
        if after is None:
            raise RemoteProtocolError(f"{got.value} while {was.value}")


class Echo:
    """Sends every ping back."""

    def __init__(self, now: float, idle_timeout: float = IDLE_TIMEOUT) -> None:
        self.state = EchoState.LISTENING
        self.deadline = now + idle_timeout
        self._idle_timeout = idle_timeout
        self._reader = PingReader()
        self._out = b""
        self._event: EchoEvent | None = None

    def receive_data(self, data: bytes, now: float) -> None:
        self._step(EchoInput.DATA if data else EchoInput.EOF)
        if data:
            self._out += self._reader.feed(data)
            self.deadline = now + self._idle_timeout
        else:
            self._reader.finish()
            self._event = PeerFinished()

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._step(EchoInput.TIMEOUT)
            self._event = PeerIdled()

    def data_to_send(self) -> bytes:
        out, self._out = self._out, b""
        return out

    def next_event(self) -> EchoEvent | None:
        event, self._event = self._event, None
        return event

    def _step(self, got: EchoInput) -> None:
        after = ECHO_TRANSITIONS[self.state, got]
        if after is None:
            raise RemoteProtocolError(f"{got.value} while {self.state.value}")
        self.state = after
        if after is EchoState.FINISHED:
            self.deadline = math.inf
