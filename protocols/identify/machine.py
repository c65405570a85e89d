"""Identify, sans-IO, for the side that opens the stream: it sends nothing and takes one message.

The other side has no machine: it sends its message and ends the stream (`wire.encode_info`).
"""

import enum
import math

from agentmesh.errors import RemoteProtocolError
from agentmesh.protocols.identify.events import IdentifyEvent, PeerIdentified, TimedOut
from agentmesh.protocols.identify.wire import MAX_MESSAGE_BYTES, decode_info
from agentmesh.types import PeerId
from agentmesh.wire.framing import FrameReader

IDENTIFY_TIMEOUT = 10.0  # seconds


class State(enum.Enum):
    AWAITING = "awaiting the peer's message"
    FINISHED = "finished"


class Input(enum.Enum):
    MESSAGE = "a message"
    GARBAGE = "garbage"
    STRANGER = "the message of another peer"
    EOF = "end of stream"
    TIMEOUT = "timeout"


# None: the peer broke the protocol. What comes behind the message is not for us: newer peers send a second one.
# fmt: off
ROWS: dict[State, tuple[State | None, ...]] = {
    #               MESSAGE         GARBAGE         STRANGER        EOF             TIMEOUT
    State.AWAITING: (State.FINISHED, None,           None,           None,           State.FINISHED),
    State.FINISHED: (State.FINISHED, State.FINISHED, State.FINISHED, State.FINISHED, State.FINISHED),
}
# fmt: on
TRANSITIONS = {(state, got): to for state, row in ROWS.items() for got, to in zip(Input, row, strict=True)}


class Identification:
    """Takes what `peer` says of itself.

    `receive_data` raises RemoteProtocolError when that is nothing, no message, or another peer's key; the machine is
    finished then.
    """

    def __init__(self, peer: PeerId, now: float, timeout: float = IDENTIFY_TIMEOUT) -> None:
        self.state = State.AWAITING
        self.deadline = now + timeout
        self._peer = peer
        self._reader = FrameReader(MAX_MESSAGE_BYTES)
        self._event: IdentifyEvent | None = None

    def receive_data(self, data: bytes, now: float) -> None:
        if not data:
            self._step(Input.EOF)
        elif self.state is State.AWAITING:
            self._reader.receive_data(data)
            self._read()

    def handle_timeout(self, now: float) -> None:
        if now >= self.deadline:
            self._step(Input.TIMEOUT)
            self._event = TimedOut()

    def data_to_send(self) -> bytes:
        return b""

    def next_event(self) -> IdentifyEvent | None:
        event, self._event = self._event, None
        return event

    def _read(self) -> None:
        try:
            frame = self._reader.next_frame()
            info = None if frame is None else decode_info(frame)
        except RemoteProtocolError as exc:
            self._step(Input.GARBAGE, exc)
        else:
            if info is not None:
                self._step(Input.MESSAGE if info.peer == self._peer else Input.STRANGER)
                self._event = PeerIdentified(info)

    def _step(self, got: Input, cause: RemoteProtocolError | None = None) -> None:
        was, after = self.state, TRANSITIONS[self.state, got]
        self.state, self.deadline = State.FINISHED, math.inf
        if after is None:
            raise cause or RemoteProtocolError(f"{got.value} while {was.value}")
