"""The mux: one link's frames in, its streams' bytes out, and back.

Call order, for a driver: after `receive_data`, a command or `handle_timeout`, send what `data_to_send` gives until it
is empty, then act on the events. Nothing here blocks: `read` gives what has arrived, `send` queues.
"""

import attrs

from agentmesh.errors import (
    ErrorCode,
    LimitExceededError,
    LocalProtocolError,
    ProtocolError,
    RejectedError,
    RemoteProtocolError,
)
from agentmesh.runtime.yamux.channel import Channel
from agentmesh.runtime.yamux.channels import Channels
from agentmesh.runtime.yamux.chunks import Chunk
from agentmesh.runtime.yamux.cutter import FrameCutter
from agentmesh.runtime.yamux.events import (
    ChannelFinished,
    ChannelOpened,
    ChannelReadable,
    ChannelReset,
    Event,
    GoAwayReceived,
    PongReceived,
)
from agentmesh.runtime.yamux.frames import (
    ACK,
    FIN,
    MAX_STREAM_ID,
    RST,
    SESSION_ID,
    SYN,
    FrameType,
    GoAwayCode,
    Header,
    encode_header,
)
from agentmesh.runtime.yamux.ledger import Ledger, Waste
from agentmesh.runtime.yamux.limits import MuxLimits
from agentmesh.runtime.yamux.memory import Memory
from agentmesh.runtime.yamux.outbox import Outbox
from agentmesh.runtime.yamux.states import OVER, READABLE, SENDABLE, Input, State

MAX_SEND_CREDIT = 2**32 - 1
MAX_UNANSWERED = 64  # streams that are not acknowledged; some peers open no more than 256 before they are
BUFFERED, CONTROL = "max_buffered_bytes", "max_control_bytes"
OVERFLOW, OVERRUN = "window_overflow", "window_overrun"
BOUNDS = (*(waste.value for waste in Waste), BUFFERED, CONTROL, OVERFLOW, OVERRUN)  # what a LimitExceededError may name


@attrs.frozen
class MuxStatistics:
    """A snapshot of the mux."""

    inbound_streams: int
    outbound_streams: int
    lingering_streams: int
    late_frames: int  # for streams already gone, or behind their end: thrown away
    refused_streams: int
    stalled_streams: int  # reset because the peer gave them no credit
    window_bytes_left: int
    held_bytes: int  # received and not read, queued and not sent


class Mux:
    """One side of a yamux session.

    Args:
        dialer: whether this side dialled the link; the dialer's streams have odd numbers.
        limits: the bounds on the peer.
        now: seconds on the driver's clock.
        memory: where its bytes are counted, with a growth of max_session_window_bytes.

    Every method may raise LocalProtocolError (our caller misused it: nothing happened). `receive_data` raises
    RemoteProtocolError once the peer broke the protocol; the mux is then finished, and `data_to_send` gives the
    go-away.
    """

    def __init__(
        self, *, dialer: bool, limits: MuxLimits | None = None, now: float = 0.0, memory: Memory | None = None
    ) -> None:
        self._limits = limits or MuxLimits()
        self._next_id = 1 if dialer else 2
        self.memory = memory or Memory(self._limits.max_session_window_bytes)
        self._channels = Channels(self._limits, self.memory)
        self._cutter = FrameCutter(self._take_header, self._take_body)
        self._outbox = Outbox(self._limits.max_frame_bytes)
        self._ledger = Ledger(self._limits.allowances, now)
        self._events: list[Event] = []
        self._body: Channel | None = None  # whose bytes come next; None for those that nobody wants
        self._body_flags = 0
        self._unanswered: list[int] = []  # the numbers of streams whose ACK goes out with what we say on them
        self._late_frames = 0
        self._stalled_streams = 0
        self._refused = 0
        self._failure: ProtocolError | None = None

    # ── what a driver asks ──

    @property
    def deadline(self) -> float | None:
        """When `handle_timeout` has something to do, or None."""
        return self._channels.deadline

    @property
    def wants_to_send(self) -> bool:
        """Whether `data_to_send` has something to give."""
        return bool(self._outbox.control or self._outbox.turns)

    @property
    def waiting(self) -> int:
        """How many streams have something to send, and credit for it."""
        return len(self._outbox.turns)

    @property
    def flushed(self) -> bool:
        """Nothing waits: neither for the link nor for the peer's credit."""
        return not self.wants_to_send and all(channel.flushed for channel in self._channels)

    def statistics(self) -> MuxStatistics:
        return MuxStatistics(
            inbound_streams=self._channels.count(self._next_id + 1),
            outbound_streams=self._channels.count(self._next_id),
            lingering_streams=self._channels.lingering,
            late_frames=self._late_frames,
            refused_streams=self._refused,
            stalled_streams=self._stalled_streams,
            window_bytes_left=self.memory.growth_left,
            held_bytes=self.memory.held,
        )

    def check_room(self) -> None:
        """Whether `open` would open a stream now.

        Raises:
            RejectedError: max_outbound_streams are open.
            LocalProtocolError: stream numbers are used up; open another session.
        """
        if self._channels.count(self._next_id) >= self._limits.max_outbound_streams:
            raise RejectedError("max_outbound_streams are open on this session", ErrorCode.RESOURCE_LIMIT_EXCEEDED)
        if self._next_id > MAX_STREAM_ID:
            raise LocalProtocolError("no stream numbers left on this session")

    # ── commands ──

    def open(self) -> Channel:
        """Open a stream. Its SYN leaves with its first bytes, or alone when there are none.

        Raises:
            RejectedError, LocalProtocolError: as `check_room`.
        """
        self.check_room()
        channel = self._channels.add(self._next_id, SYN)
        self._next_id += 2
        self._ledger.earn(Waste.EMPTY_FRAMES)
        self._outbox.schedule(channel)
        return channel

    def send(self, channel: Channel, data: Chunk) -> None:
        """Queue bytes, by reference: the caller must not change them."""
        if channel.state not in SENDABLE:
            raise LocalProtocolError(f"send on a stream that is {channel.state.value}")
        if data:
            channel.queue(data)
            self._outbox.schedule(channel)

    def pass_by(self, channel: Channel, data: bytes) -> bytes | None:
        """`send` and `data_to_send` in one, where these bytes are all that there is to send now; else None."""
        if self._failure is not None or channel.state not in SENDABLE:
            return None
        return self._outbox.pass_by(channel, data)

    def finish(self, channel: Channel) -> None:
        """Say that no more bytes come after those queued."""
        self._channels.step(channel, Input.SEND_FIN)
        channel.fin_pending = True
        self._outbox.schedule(channel)

    def close(self, channel: Channel, now: float) -> None:
        """Finish, and read no more. Unread bytes are dropped, and the peer is told to stop once ours have left."""
        if channel.state in SENDABLE:
            channel.fin_pending = True
            self._outbox.schedule(channel)
        unread = bool(channel.inbox)
        channel.discard()
        self._channels.step(channel, Input.CLOSE)
        self._channels.linger(channel, now)
        if channel.state is State.ABANDONED and unread:
            self._shed(channel)

    def reset(self, channel: Channel, code: int = ErrorCode.NO_ERROR) -> None:
        """Cut both directions now, and read no more. A stream that is over stays as it is."""
        channel.discard()
        if channel.state in OVER and channel.flushed:
            return
        if not channel.flags_pending & SYN:  # a stream whose SYN never left needs no RST
            self._outbox.control += encode_header(FrameType.WINDOW_UPDATE, RST, channel.id, code)
        channel.reset_code = code
        channel.drop()
        self._channels.step(channel, Input.SEND_RST)

    def read(self, channel: Channel, max_bytes: int | None = None) -> bytes:
        """Take received bytes, by default all; the credit for them goes back to the peer. b"" when there are none."""
        if not channel.inbox:
            return b""
        data = channel.take_received(max_bytes)
        if channel.state not in READABLE:
            channel.window.taken(len(data))
        elif credit := channel.window.consumed(len(data)):
            self._outbox.control += encode_header(FrameType.WINDOW_UPDATE, 0, channel.id, credit)
        return data

    def ping(self, value: int) -> None:
        """Ask for a PongReceived with this 32-bit value."""
        self._outbox.control += encode_header(FrameType.PING, SYN, SESSION_ID, value)

    def go_away(self, code: int = GoAwayCode.NORMAL) -> None:
        """Tell the peer that no stream will follow."""
        self._outbox.control += encode_header(FrameType.GO_AWAY, 0, SESSION_ID, code)

    def data_to_send(self, max_bytes: int) -> tuple[bytes, list[Channel]]:
        """What to send next: control frames first, then the streams in turn, about `max_bytes` at the most.

        Returns:
            The bytes, and the streams whose queue became shorter by them (their senders may go on).
        """
        data, progressed = self._outbox.take(max_bytes if self._failure is None else 0)  # the go-away is the last
        for channel in progressed:
            if channel.state is State.SHEDDING and channel.flushed:
                self.reset(channel)
            self._channels.remove_if_over(channel)
            self._channels.judge_stall(channel, self._ledger.now)
        return data, progressed

    # ── what the world did ──

    def receive_data(self, data: bytes | memoryview, now: float = 0.0) -> list[Event]:
        """Feed bytes from the link.

        Args:
            now: seconds; what the peer may waste comes back with time.
        Raises:
            RemoteProtocolError: the peer broke yamux (or a LimitExceededError, one of `MuxLimits`); the session is
            over.
        """
        if self._failure is not None:
            raise LocalProtocolError("this mux has failed") from self._failure
        self._ledger.now = now
        try:
            self._cutter.receive_data(data)
        except RemoteProtocolError as exc:
            self._fail(exc)
            raise
        events, self._events = self._events, []
        return events

    def charge(self, waste: Waste, now: float) -> None:
        """Count what the peer wasted above the mux. Raises LimitExceededError as `receive_data`."""
        self._ledger.now = now
        try:
            self._ledger.spend(waste)
        except LimitExceededError as exc:
            self._fail(exc)
            raise

    def _fail(self, exc: RemoteProtocolError) -> None:
        self._failure = exc
        self._outbox.control += encode_header(FrameType.GO_AWAY, 0, SESSION_ID, GoAwayCode.PROTOCOL_ERROR)

    def handle_timeout(self, now: float) -> list[Event]:
        """Reset the streams whose peers never ended theirs, or let our bytes wait for ever. Harmless when early.

        What should be called now and then even so: streams on which nothing was said are acknowledged then.
        """
        self._ledger.now = now
        self._acknowledge()
        for channel in self._channels.overdue(now):
            if channel.state in READABLE or channel.state in SENDABLE:
                self._stalled_streams += 1
                self._events.append(ChannelReset(channel))
            self.reset(channel, ErrorCode.GARBAGE_COLLECTED)
        events, self._events = self._events, []
        return events

    # ── what the peer's frames do ──

    def _take_header(self, header: Header) -> None:
        frame_type, flags, number, length = header
        if frame_type == FrameType.PING:
            self._take_ping(flags, length)
        elif frame_type == FrameType.GO_AWAY:
            self._ledger.spend(Waste.GO_AWAYS)
            self._events.append(GoAwayReceived(length))
        else:
            self._body, self._body_flags = None, flags
            channel = self._accept(number) if flags & SYN else self._channels.get(number)
            if channel is not None:
                self._take_frame(channel, frame_type, flags, length)
            elif not flags & SYN:
                self._take_late()

    def _take_ping(self, flags: int, value: int) -> None:
        self._ledger.spend(Waste.PINGS)
        if flags & SYN:
            self._control(FrameType.PING, ACK, SESSION_ID, value)
        else:
            self._events.append(PongReceived(value))

    def _take_frame(self, channel: Channel, frame_type: int, flags: int, length: int) -> None:
        """The header of a stream's frame."""
        if flags & RST:
            channel.reset_code = length if frame_type == FrameType.WINDOW_UPDATE else ErrorCode.NO_ERROR
            self._cut(channel)
        elif not length and not flags & (SYN | FIN):
            self._ledger.spend(Waste.EMPTY_FRAMES)
        elif frame_type == FrameType.WINDOW_UPDATE:
            self._take_credit(channel, flags, length)
        elif length:
            self._begin_body(channel, length)
        elif flags & FIN:
            self._take_fin(channel)

    def _take_late(self) -> None:
        """A frame of a stream already gone, or behind its end: legal, and nobody wants it."""
        self._late_frames += 1
        self._ledger.spend(Waste.LATE_FRAMES)

    def _accept(self, number: int) -> Channel | None:
        if number & 1 == self._next_id & 1 or self._channels.get(number) is not None:
            raise RemoteProtocolError(f"stream {number} cannot be opened by the peer now")
        if self._channels.count(number) >= self._limits.max_inbound_streams:
            self._refused += 1
            self._ledger.spend(Waste.REFUSALS)
            self._control(FrameType.WINDOW_UPDATE, RST, number, ErrorCode.RESOURCE_LIMIT_EXCEEDED)
            return None
        channel = self._channels.add(number, ACK)
        self._unanswered.append(channel.id)
        if len(self._unanswered) >= MAX_UNANSWERED:
            self._acknowledge()
        self._events.append(ChannelOpened(channel))
        return channel

    def _acknowledge(self) -> None:
        """Streams of the peer on which we have said nothing yet: it may have to hear of each that we took it."""
        for number in self._unanswered:
            if (channel := self._channels.get(number)) is not None:
                self._outbox.schedule(channel)
        self._unanswered.clear()

    def _take_credit(self, channel: Channel, flags: int, credit: int) -> None:
        channel.send_credit += credit
        if channel.send_credit > MAX_SEND_CREDIT:
            raise LimitExceededError(f"the window of stream {channel.id} overflows", limit=OVERFLOW)
        if credit:
            self._channels.judge_stall(channel, self._ledger.now)
            self._outbox.schedule(channel)
        if flags & FIN:
            self._take_fin(channel)

    def _begin_body(self, channel: Channel, length: int) -> None:
        self._channels.step(channel, Input.RECV_DATA)
        if channel.state is State.SHEDDING:
            self._shed(channel)
            return
        if channel.state not in READABLE:
            self._take_late()
            return
        if not channel.window.received(length):
            raise LimitExceededError(f"stream {channel.id}: {length} bytes beyond its window", limit=OVERRUN)
        self._body = channel
        if self.memory.received > self._limits.max_buffered_bytes:
            raise LimitExceededError(f"{BUFFERED}: nobody takes what the peer sends", limit=BUFFERED)

    def _take_body(self, piece: bytes | memoryview) -> None:
        channel = self._body
        if channel is None:
            return
        if channel.state in READABLE:
            channel.inbox.append(bytes(piece))
            self._events.append(ChannelReadable(channel))
        if not self._cutter.body_left and self._body_flags & FIN:
            self._take_fin(channel)

    def _take_fin(self, channel: Channel) -> None:
        was = channel.state
        self._channels.step(channel, Input.RECV_FIN)
        if was in (State.OPEN, State.LOCAL_DONE):
            self._events.append(ChannelFinished(channel))

    def _cut(self, channel: Channel) -> None:
        """The peer reset the stream: what it sent before stays readable only if it had finished."""
        channel.drop()
        if channel.state in SENDABLE and channel.id & 1 != self._next_id & 1:  # its own stream, while we work for it
            self._ledger.spend(Waste.RESETS)
        self._channels.step(channel, Input.RECV_RST)
        if channel.state is State.RESET:
            channel.discard()
        self._events.append(ChannelReset(channel))

    def _shed(self, channel: Channel) -> None:
        """The peer sends what nobody reads: a reset tells it, behind the bytes that we still have for it."""
        self._channels.step(channel, Input.RECV_DATA)
        if channel.flushed:
            self.reset(channel)

    def _control(self, frame_type: FrameType, flags: int, stream_id: int, length: int) -> None:
        if len(self._outbox.control) >= self._limits.max_control_bytes:
            raise LimitExceededError(f"{CONTROL}: the peer causes more than it reads", limit=CONTROL)
        self._outbox.control += encode_header(frame_type, flags, stream_id, length)
