"""One stream of a session, for Trio: waits where the mux has nothing to give or no room to take."""

import operator
from typing import TYPE_CHECKING

import trio

from agentmesh.abc import Direction, NowaitSender, Stream
from agentmesh.errors import ErrorCode, RejectedError, RemoteProtocolError, StreamResetError
from agentmesh.runtime.figures import reset_error
from agentmesh.runtime.multistream import MAX_MESSAGE_BYTES
from agentmesh.runtime.pieces import pieces_of
from agentmesh.runtime.proposal import Proposal
from agentmesh.runtime.wakes import Wakes
from agentmesh.runtime.yamux import Channel, Waste
from agentmesh.runtime.yamux.states import BROKEN, READABLE, SENDABLE, State
from agentmesh.types import PeerId, ProtocolId

if TYPE_CHECKING:
    from agentmesh.runtime.session import MuxSession

UNNAMED = ProtocolId("")


class MuxStream(Wakes, Stream, NowaitSender):
    """A stream of a `MuxSession`.

    An outbound stream begins to exist on the wire with its first bytes: protocol name and data leave in one segment.
    Its negotiation ends with the first bytes received. An inbound one is negotiated before a protocol sees it, and its
    answer leaves with the protocol's first bytes.
    """

    def __init__(self, session: "MuxSession", direction: Direction, protocol: ProtocolId = UNNAMED) -> None:
        super().__init__()
        self.protocol = protocol
        self.direction = direction
        self._session = session
        self._channel: Channel | None = None
        self._proposal: Proposal | None = None  # until it is answered
        self._prefix = b""  # negotiation that leaves with the next bytes
        self._early = b""  # the protocol's bytes that came with the negotiation
        self._answered = False
        self._closed = False

    @classmethod
    def outbound(cls, session: "MuxSession", protocol: ProtocolId) -> "MuxStream":
        stream = cls(session, Direction.OUTBOUND, protocol)
        stream._proposal = Proposal(protocol)
        stream._prefix = stream._proposal.opening
        return stream

    @classmethod
    def inbound(cls, session: "MuxSession", channel: Channel) -> "MuxStream":
        stream = cls(session, Direction.INBOUND)
        stream._channel = channel
        return stream

    @property
    def peer(self) -> PeerId:
        return self._session.peer

    @property
    def session(self) -> "MuxSession":
        return self._session

    # ── sending ──

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        with self._sending:
            self._check_sendable()
            await trio.lowlevel.checkpoint_if_cancelled()
            await self._wait_room()
            waited = False
            for piece in pieces_of(data, self._session.config.write_bytes):
                self._queue(piece)
                waited = await self._wait_room()
            if not waited:
                await trio.lowlevel.cancel_shielded_checkpoint()  # behind the bytes: the writer runs in it

    def send_nowait(self, data: bytes | memoryview) -> int:
        piece = bytes(data[: self._session.config.write_bytes])
        return len(piece) if self.push(piece, at_once=False) else 0

    def push(self, data: bytes, *, at_once: bool = True) -> bool:
        """Queue all of `data` if there is room; and let the writer have no turn of its own for it, if `at_once`."""
        if self._sending.busy or self._closed or not self._session.is_open:
            return False
        if (channel := self._channel) is not None and (channel.state not in SENDABLE or channel.queued > self._room):
            return False
        if not (at_once and channel is not None and not self._prefix and self._session.pass_by(channel, data)):
            self._queue(data, at_once=at_once)
        return True

    async def wait_send_all_might_not_block(self) -> None:
        with self._sending:
            self._check_sendable()
            await trio.lowlevel.checkpoint()
            await self._wait_room()

    async def send_eof(self) -> None:
        with self._sending:
            if self._closed:
                raise trio.ClosedResourceError("this stream was closed")
            await trio.lowlevel.checkpoint()
            if self._channel is not None and self._channel.state in (State.LOCAL_DONE, State.DONE):
                return
            self._check_sendable()
            channel = self._queue(b"")
            self._session.mux.finish(channel)
            self._session.writer.wake()

    @property
    def _room(self) -> int:
        return self._session.config.send_buffer_bytes

    async def _wait_room(self) -> bool:
        """Until no more is queued than may stay behind. Returns whether that took any waiting."""
        waited = False
        while self._channel is not None and self._channel.queued > self._room:
            await self._sending.wait()
            waited = True
            self._check_sendable()
        return waited

    def _queue(self, data: bytes | memoryview, *, at_once: bool = False) -> Channel:
        """Hand bytes to the mux, the negotiation before them."""
        self._check_sendable()
        channel = self._channel
        if channel is None:
            channel = self._channel = self._session.adopt(self)
        if self._prefix:
            data, self._prefix = self._prefix + bytes(data), b""
        self._session.mux.send(channel, data)
        self._session.answer(at_once=at_once)
        return channel

    def _check_sendable(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this stream was closed")
        self._session.check_open()
        if self._channel is not None and self._channel.state not in SENDABLE:
            if self._channel.state in BROKEN:
                raise self._reset_error(self._channel)
            raise trio.ClosedResourceError("send after send_eof")

    # ── receiving ──

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if max_bytes is not None and operator.index(max_bytes) < 1:
            raise ValueError("max_bytes must be at least 1")
        with self._receiving:
            if self._closed:
                raise trio.ClosedResourceError("this stream was closed")
            await trio.lowlevel.checkpoint_if_cancelled()
            channel = self._ask()
            if (data := self._take(channel, max_bytes)) is not None:
                await trio.lowlevel.cancel_shielded_checkpoint()
            while data is None:
                await self._receiving.wait()
                if self._closed:
                    raise trio.ClosedResourceError("this stream was closed")
                data = self._take(channel, max_bytes)
            return data

    def _ask(self) -> Channel:
        """Whoever waits for an answer must have asked. What has come can be read even when that is too late."""
        channel = self._channel
        if channel is None or (self._prefix and self._session.is_open and channel.state in SENDABLE):
            return self._queue(b"")
        return channel

    def _take(self, channel: Channel, max_bytes: int | None) -> bytes | None:
        """Bytes that have come; b"" at the end; None to wait."""
        while True:
            if self._early:
                cut = len(self._early) if max_bytes is None else max_bytes
                data, self._early = self._early[:cut], self._early[cut:]
                self._answered = True
                return data
            asked = max_bytes if max_bytes is None or self._proposal is None else max(max_bytes, MAX_MESSAGE_BYTES)
            received = self._take_from_mux(channel, asked)  # the answer at once, for who asks for single bytes
            if not received or self._proposal is None:
                self._answered = self._answered or bool(received)
                return received
            self._hear_answer(self._proposal, channel, received)

    def _take_from_mux(self, channel: Channel, max_bytes: int | None) -> bytes | None:
        if channel.inbox:
            return self._session.read(channel, max_bytes)
        if channel.state is State.RESET:
            raise self._reset_error(channel)
        if channel.state in READABLE:
            self._session.check_open()
            return None
        if self._proposal is not None:
            raise StreamResetError("the peer ended the stream before it agreed to the protocol")
        return b""

    def _hear_answer(self, proposal: Proposal, channel: Channel, received: bytes) -> None:
        """Take the peer's answer. Without an agreement the stream is cut, for a task that sends as well."""
        try:
            early = proposal.receive_data(received)
        except (RejectedError, RemoteProtocolError) as exc:
            self._cut(channel, exc.code)
            if isinstance(exc, RejectedError):
                raise
            raise StreamResetError(f"{self.peer} does not negotiate {self.protocol}: {exc}", exc.code) from exc
        if early is not None:
            self._proposal, self._early = None, early

    def _cut(self, channel: Channel, code: int) -> None:
        self._session.mux.reset(channel, code)
        self._session.writer.wake()
        self.wake()

    def _reset_error(self, channel: Channel) -> StreamResetError:
        finished = channel.state is State.CUT
        return reset_error(self.peer, self.protocol, channel.reset_code, answered=self._answered, finished=finished)

    # ── the end ──

    async def wait_broken(self) -> trio.BrokenResourceError:
        await trio.lowlevel.checkpoint()
        while (error := self.breakage()) is None:
            await self._wait_end()
        return error

    def breakage(self) -> trio.BrokenResourceError | None:
        if self._closed:
            raise trio.ClosedResourceError("this stream was closed")
        channel = self._channel
        return self._reset_error(channel) if channel and channel.state in BROKEN else self._session.breakage()

    async def aclose(self) -> None:
        if self._closed:
            await trio.lowlevel.checkpoint()
            return
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
        except trio.Cancelled:
            self.reset(ErrorCode.NO_ERROR)
            raise
        self._close()
        await trio.lowlevel.cancel_shielded_checkpoint()

    def _close(self) -> None:
        if self._channel is not None and self._session.is_open:
            if self._prefix and self._channel.state in SENDABLE:
                self._queue(b"")
            self._session.mux.close(self._channel, trio.current_time())
            self._session.writer.wake()
        self._release()

    def reset(self, code: int = ErrorCode.NO_ERROR) -> None:
        if self._closed:
            return
        if self._channel is not None and self._session.is_open:
            self._session.mux.reset(self._channel, code)
            self._session.writer.wake()
        self._release()

    def _release(self) -> None:
        self._closed = True
        self._session.forget(self)
        self.wake()

    # ── for the session ──

    @property
    def channel(self) -> Channel | None:
        return self._channel

    def receive_nowait(self) -> bytes | None:
        """`receive_some`, or None where that would wait."""
        return None if self._channel is None else self._take(self._channel, None)

    def read_arrived(self, max_bytes: int) -> bytes:
        """What has come already of an inbound stream."""
        return b"" if self._channel is None else self._session.read(self._channel, max_bytes)

    def agree(self, protocol: ProtocolId, answer: bytes, early: bytes) -> None:
        """The peer has named its protocol; `answer` leaves with the first bytes sent, `early` come first when read."""
        self.protocol, self._prefix, self._early = protocol, answer, early

    def give_up_negotiation(self) -> None:
        """Reset an inbound stream on which no protocol was agreed. Unless the peer cut it, that counts as wasted."""
        wasted = self._channel is not None and self._channel.state not in BROKEN
        self.reset(ErrorCode.PROTOCOL_NEGOTIATION_FAILED)
        if wasted:
            self._session.charge(Waste.UNNAMED)

    def __repr__(self) -> str:
        return f"<MuxStream {self.protocol or '?'} {self.direction.value} {self.peer} {self._channel}>"
