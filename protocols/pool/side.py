"""What both ends of a control stream do: the table, heartbeats, drains, and the frames.

Call order for a driver: after a command, `receive_data` or `handle_timeout`, send `data_to_send()`, then act on
`next_event()`. `receive_data(b"")` says that the peer ended the stream. What is None in the table is a
LocalProtocolError when we did it, and a RemoteProtocolError when the peer did; the machine is finished after that.
"""

import abc
import enum
import math
from collections import deque

from agentmesh.errors import LimitExceededError, LocalProtocolError, RemoteProtocolError
from agentmesh.protocols.pool import events
from agentmesh.protocols.pool.beat import HEARTBEAT_INTERVAL, Beat
from agentmesh.protocols.pool.drains import Departure
from agentmesh.protocols.pool.values import (
    MAX_STREAM_ID,
    Ack,
    Drain,
    DrainReason,
    Heartbeat,
    HeartbeatAck,
    Hello,
    Message,
    Metadata,
    Phase,
    Stats,
)
from agentmesh.protocols.pool.wire import MAX_MESSAGE_BYTES, Kind, decode_message, encode_message
from agentmesh.wire.framing import FrameReader, encode_frame

GREETING_TIMEOUT = 10.0  # seconds for the hello, and for its ack
DRAIN_TIMEOUT = 60.0  # seconds that streams have
MIN_SETTLE_TIME = 1.0  # seconds between the two phases of a drain; two round trips when those take longer
MAX_UNSENT_BYTES = 128 * 1024  # that wait for a peer which makes us answer and does not read
MAX_UNACKNOWLEDGED = 4  # pieces of metadata


class State(enum.Enum):
    IDLE = "before the hello"
    GREETED = "between hello and ack"
    OPEN = "in the pool"
    FINISHED = "finished"


class Input(enum.Enum):
    """Whoever says it: a hello is the agent's, an ack the router's."""

    HELLO = "hello"
    ACK = "ack"
    REFUSAL = "refusal"
    METADATA = "metadata"
    STATS = "stats"
    BEAT = "heartbeat"
    GOAWAY = "goaway"
    GARBAGE = "what is no message"
    EOF = "end of stream"
    TIMEOUT = "timeout"


_IDLE, _GREET, _OPEN, _DONE = State
# fmt: off
ROWS: dict[State, tuple[State | None, ...]] = {
    #         HELLO   ACK    REFUSAL META   STATS  BEAT   GOAWAY GARB.  EOF    TIMEOUT
    _IDLE:  (_GREET, None,  None,   None,  None,  None,  None,  None,  _DONE, _DONE),
    _GREET: (None,   _OPEN, _DONE,  None,  None,  None,  None,  None,  _DONE, _DONE),
    _OPEN:  (None,   _OPEN, None,   _OPEN, _OPEN, _OPEN, _OPEN, None,  _DONE, _DONE),
    _DONE:  (None,   None,  None,   None,  None,  None,  None,  _DONE, _DONE, _DONE),
}
# fmt: on
TRANSITIONS = {(state, got): to for state, row in ROWS.items() for got, to in zip(Input, row, strict=True)}


class Side(abc.ABC):
    """What both sides do: heartbeats, drains, and the frames."""

    mine: type[Message] | tuple[type[Message], ...]
    untyped: Kind

    def __init__(self, now: float, interval: float = HEARTBEAT_INTERVAL) -> None:
        self.state = State.IDLE
        self.beat = Beat(now, interval)
        self.ours, self.theirs = Departure(), Departure()
        self.open_streams: set[int] = set()
        self.last_stream_id = 0  # the highest that was begun
        self._reader = FrameReader(MAX_MESSAGE_BYTES)
        self._events: deque[events.Event] = deque()
        self._out = bytearray()
        self.greet_by = math.inf
        self._settle_at = math.inf
        self._drain = Drain(Phase.ANNOUNCED, DrainReason.UNSPECIFIED)
        self._owed = 0  # acks
        self._said_drained = self._said_expired = False

    # ── for drivers ──

    @property
    def deadline(self) -> float:
        """When `handle_timeout` has something to do."""
        match self.state:
            case State.OPEN:
                expires_at = math.inf if self._said_expired else self._expires_at
                return min(self.beat.deadline, self._settle_at, expires_at)
            case State.FINISHED:
                return math.inf
            case _:
                return self.greet_by

    @property
    def is_draining(self) -> bool:
        """Whether either side leaves: nothing more is opened."""
        return self.ours.has_begun or self.theirs.has_begun

    def receive_data(self, data: bytes, now: float) -> None:
        """Take what came. Raises RemoteProtocolError, LimitExceededError."""
        if self.state is State.FINISHED:
            return
        if not data:
            self._step(Input.EOF, ours=False)
            self._events.append(events.PeerLeft())
            return
        self.beat.heard(now)
        try:
            self._reader.receive_data(data)
            while not self.is_finished and (frame := self._reader.next_frame()) is not None:
                if (message := decode_message(frame, self.untyped)) is not None:
                    self._take(message, now)
        except RemoteProtocolError:
            self.state = State.FINISHED
            raise

    def handle_timeout(self, now: float) -> None:
        if self.state is State.OPEN and not self.beat.is_lost(now):
            self._tick(now)
        elif now >= self.deadline:
            self._step(Input.TIMEOUT, ours=True)
            self._events.append(events.PeerSilent())

    def data_to_send(self) -> bytes:
        out = bytes(self._out)
        self._out.clear()
        return out

    def next_event(self) -> events.Event | None:
        return self._events.popleft() if self._events else None

    @property
    def is_finished(self) -> bool:
        return self.state is State.FINISHED

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    # ── commands ──

    def send_drain(
        self, reason: DrainReason, now: float, timeout: float = DRAIN_TIMEOUT, retry_after: float = 0.0
    ) -> None:
        """Begin to leave: phase one now, phase two by itself when the peer has surely read it.

        Args:
            timeout: seconds that open streams have.
            retry_after: seconds until a new connection would be welcome.
        Raises:
            LocalProtocolError: the connection is not open, or leaves already.
        """
        deadline_ms, retry_after_ms = round(timeout * 1000), round(retry_after * 1000)
        drain = Drain(Phase.ANNOUNCED, reason, deadline_ms, retry_after_ms, MAX_STREAM_ID)
        self._step(Input.GOAWAY, ours=True)
        if not self.ours.step(Phase.ANNOUNCED, now + timeout):
            raise LocalProtocolError("the connection is leaving already")
        self._drain = drain
        self._settle_at = now + max(MIN_SETTLE_TIME, 2 * (self.beat.rtt or 0.0))
        self._send(drain)

    def end_open(self, stream_id: int) -> None:
        """A stream is over, however it went. Those not open are none of our business."""
        self.open_streams.discard(stream_id)
        self._check_drained()

    # ── what both are told ──

    def _take(self, message: Message, now: float) -> None:
        self._step(_input_of(message) if not isinstance(message, self.mine) else Input.GARBAGE, ours=False)
        match message:
            case Heartbeat(seq):
                self._send(HeartbeatAck(seq))
            case HeartbeatAck(seq):
                took = self.beat.answered(seq, now)
                if took is not None and self.beat.rtt is not None:
                    self._events.append(events.RttMeasured(took, self.beat.rtt))
            case Drain():
                self.take_drain(message, now)
            case _:
                self.hear(message, now)

    @abc.abstractmethod
    def hear(self, message: Message, now: float) -> None:
        """What only one of them is told."""

    def take_drain(self, drain: Drain, now: float) -> None:
        if not self.theirs.step(drain.phase, now + drain.deadline_ms / 1000):
            raise RemoteProtocolError(f"a drain was {self.theirs.state.value} before")
        returned = frozenset[int]()
        if drain.phase is Phase.SETTLED:
            returned = self.returned_by(drain.last_stream_id)
            self.open_streams -= returned
        self._events.append(events.DrainReceived(drain, returned))
        self._check_drained()

    def returned_by(self, last_stream_id: int) -> frozenset[int]:
        """The opens of ours that the peer will not serve."""
        return frozenset()

    def _tick(self, now: float) -> None:
        if now >= self._settle_at:
            self._settle_at = math.inf
            self.ours.step(Phase.SETTLED, now)
            first = self._drain
            left_ms = max(round((self.ours.expires_at - now) * 1000), 0)
            self._send(Drain(Phase.SETTLED, first.reason, left_ms, first.retry_after_ms, self.last_stream_id))
            self._check_drained()
        if now >= self._expires_at and not self._said_expired:
            self._said_expired = True
            self._events.append(events.DrainExpired(frozenset(self.open_streams)))
        if (seq := self.beat.ask(now)) is not None:
            self._send(Heartbeat(seq))

    @property
    def _expires_at(self) -> float:
        return min(self.ours.expires_at, self.theirs.expires_at)

    def _check_drained(self) -> None:
        if self.ours.is_settled and not self.open_streams and not self._said_drained:
            self._said_drained = True
            self._events.append(events.Drained())

    # ── the table ──

    def say(self, message: Message) -> None:
        self._step(_input_of(message), ours=True)
        self._send(message)

    def _send(self, message: Message) -> None:
        self._out += encode_frame(encode_message(message))
        if len(self._out) > MAX_UNSENT_BYTES:
            self.state = State.FINISHED
            raise LimitExceededError("the peer makes us answer, and does not read", limit="MAX_UNSENT_BYTES")

    def _step(self, got: Input, *, ours: bool) -> None:
        was, after = self.state, TRANSITIONS[self.state, got]
        if after is not None and got in (Input.ACK, Input.METADATA, Input.HELLO, Input.REFUSAL):
            after = self._count_acks(got, after)
        if after is None and ours:
            raise LocalProtocolError(f"{got.value} {was.value}")
        self.state = after or State.FINISHED
        if after is None:
            raise RemoteProtocolError(f"{got.value} {was.value}")

    def _count_acks(self, got: Input, after: State) -> State | None:
        """An ack that nobody waits for is as wrong as one in the wrong state, and so is metadata without end."""
        owed = self._owed + (1 if got in (Input.HELLO, Input.METADATA) else -1)
        if not 0 <= owed <= MAX_UNACKNOWLEDGED:
            return None
        self._owed = owed
        return after


def _input_of(message: Message) -> Input:
    match message:
        case Ack(registered=registered):
            return Input.ACK if registered else Input.REFUSAL
        case Heartbeat() | HeartbeatAck():
            return Input.BEAT
        case _:
            return _INPUTS[type(message)]


_INPUTS: dict[type[Message], Input] = {
    Hello: Input.HELLO,
    Metadata: Input.METADATA,
    Stats: Input.STATS,
    Drain: Input.GOAWAY,
}
