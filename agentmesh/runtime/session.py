"""One authenticated peer over one link: a reader and a writer in a nursery of their own, kept alive by a pulse.

The reader awaits nothing but the link. The writer takes control frames first, then the streams in turn, and joins what
is queued into one write.
"""

from collections.abc import Awaitable, Callable

import trio

from agentmesh.abc import Direction, Session
from agentmesh.errors import ErrorCode, LimitExceededError, RejectedError, RemoteProtocolError, SessionClosedError
from agentmesh.runtime import keepalive, yamux
from agentmesh.runtime.config import SessionConfig
from agentmesh.runtime.figures import HELD, SessionStatistics, State
from agentmesh.runtime.keepalive import KeepAlive
from agentmesh.runtime.pulse import Pulse
from agentmesh.runtime.stream import MuxStream
from agentmesh.runtime.upgrade import Upgraded
from agentmesh.runtime.writer import LINK_ERRORS, Writer
from agentmesh.types import Address, PeerId, ProtocolId

AcceptStream = Callable[[MuxStream], Awaitable[None]]


class MuxSession(Session):
    """A session over yamux.

    Args:
        upgraded: the secure link; closed by `run`.
        direction: who dialled.
        accept: runs in a task of the session for each stream that the peer opens.
        config: the bounds.
        address: of the peer, as dialled or seen.
        memory: of the host, of which the session takes its part.
    """

    def __init__(
        self,
        upgraded: Upgraded,
        direction: Direction,
        accept: AcceptStream,
        config: SessionConfig,
        address: Address | None = None,
        memory: yamux.HostMemory | None = None,
    ) -> None:
        self.peer: PeerId = upgraded.peer
        self.direction = direction
        self.address = address
        self.config = config
        self._host_memory = memory or yamux.HostMemory()
        self._memory = yamux.Memory(config.mux.max_session_window_bytes, self._host_memory)
        dials = direction is Direction.OUTBOUND
        self.mux = yamux.Mux(dialer=dials, limits=config.mux, now=trio.current_time(), memory=self._memory)
        self.ended = trio.Event()
        self._link = upgraded.link
        self._early = upgraded.early
        self._accept = accept
        self.failure: RemoteProtocolError | None = None  # what the peer did, when that ended the session
        self._state = State.OPEN
        self._reason = ""
        self._streams: dict[int, MuxStream] = {}
        self.streams_begun = 0  # by either side
        self.streams_unsent = 0  # those of ours on which nothing was sent yet, and that the wire knows nothing of
        self._scope = trio.CancelScope()
        self.writer = Writer(self.mux, upgraded.link, config.write_bytes, self._progressed)
        self._keepalive = KeepAlive(trio.current_time(), config.ping_interval)
        self._bytes_received = 0

    # ── for applications ──

    async def open_stream(self, protocol: ProtocolId) -> MuxStream:
        await trio.lowlevel.checkpoint_if_cancelled()  # no more: opening is followed by sending, which yields
        self.check_open()
        if self._state is State.DRAINING:
            raise RejectedError(f"the session to {self.peer} is draining", ErrorCode.SHUTDOWN)
        self.mux.check_room()
        self.streams_begun += 1
        self.streams_unsent += 1
        return MuxStream.outbound(self, protocol)

    async def aclose(self) -> None:
        """Close gracefully: what is queued leaves within `close_timeout`, the go-away behind it; open streams are cut.

        Cancellation: ends the session at once.
        """
        self.drain()
        try:
            with trio.move_on_after(self.config.close_timeout):
                if self.is_open:
                    await self.writer.drain()
                if self.is_open:
                    self.mux.go_away()  # last: to some peers it is the end of the streams as well
                    await self.writer.drain()
        finally:
            self.abort("closed by us")
        await self.ended.wait()

    def drain(self) -> None:
        """Open and accept no more streams; those open go on. The peer hears of it only when it opens one."""
        if self._state is State.OPEN:
            self._state = State.DRAINING

    def abort(self, reason: str) -> None:
        """End the session now, unless it has ended. Its streams raise SessionClosedError with this reason."""
        if self._state is State.CLOSED:
            return
        self._state = State.CLOSED
        self._reason = f"session to {self.peer} ended: {reason}"
        self.writer.end()
        self._scope.cancel()
        for stream in self.streams:
            stream.wake()
        self._streams.clear()
        self._memory.release(self.config.mux.max_session_window_bytes)

    @property
    def is_open(self) -> bool:
        return self._state is not State.CLOSED

    @property
    def accepts_streams(self) -> bool:
        """Whether `open_stream` can succeed."""
        return self._state is State.OPEN

    @property
    def streams(self) -> tuple[MuxStream, ...]:
        """The streams open now, of both sides."""
        return tuple(self._streams.values())

    def statistics(self) -> SessionStatistics:
        sizes = (self._bytes_received, self.writer.bytes_sent)
        return SessionStatistics(self._state.value, len(self._streams), self._keepalive.rtt, *sizes)

    # ── for the host ──

    async def run(self, pulse: Pulse) -> None:
        """Be the session, until it ends; never raises for what the peer or the network does.

        Args:
            pulse: that keeps it alive. Somebody has to run it.
        Cancellation: ends the session and its streams.
        """
        try:
            with self._scope, pulse.keeping(self):
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    nursery.start_soon(self._read)
                    nursery.start_soon(self._write)
        finally:
            # the go-away of a mux that failed says why; everybody else just hears the link close
            await self.writer.say_farewell()
            self.ended.set()

    def beat(self, now: float) -> float:
        """Pings, the loss of the peer, and closed streams that linger: what is due. When it is due again."""
        if (ping := self._keepalive.handle_timeout(now)) is not None:
            self.mux.ping(ping)
        if self._keepalive.state is keepalive.State.LOST:
            self.abort(f"the peer answered no ping for {keepalive.LOSS_INTERVALS} intervals")
        again = now + self.config.ping_interval  # an answer to a ping makes the next one due no sooner
        if not self.is_open:
            return again  # by then it is let go, and its place with it
        for event in self.mux.handle_timeout(now):
            self._act(event)
        if self.mux.wants_to_send:
            self.writer.wake()
        return min(again, self._keepalive.deadline, self.mux.deadline or again)

    @property
    def held_bytes(self) -> int:
        """What its streams hold in memory: received and not read, queued and not sent."""
        return self._memory.held if self.is_open else 0

    def overdraw(self) -> None:
        """End the session, because it holds more than any other and all of them together too much."""
        self._fail(LimitExceededError(f"{HELD}: nobody takes what waits here", limit=HELD))

    # ── for streams ──

    def adopt(self, stream: MuxStream) -> yamux.Channel:
        """Give an outbound stream its place on the wire."""
        channel = self.mux.open()
        self.streams_unsent -= 1
        self._streams[channel.id] = stream
        return channel

    def forget(self, stream: MuxStream) -> None:
        channel = stream.channel
        self.streams_unsent -= channel is None
        if channel is not None and self._streams.get(channel.id) is stream:  # a peer may use a number again
            del self._streams[channel.id]

    def read(self, channel: yamux.Channel, max_bytes: int | None) -> bytes:
        data = self.mux.read(channel, max_bytes)
        if self.mux.wants_to_send and self.is_open:
            self.writer.wake()
        return data

    def answer(self, *, at_once: bool = False) -> None:
        """A stream has something to send, perhaps an answer; or what is best sent at once."""
        try:
            self.writer.answer(at_once=at_once)
        except LINK_ERRORS as exc:
            self._fail(exc)

    def pass_by(self, channel: yamux.Channel, data: bytes) -> bool:
        """Send bytes of a stream at once, if nothing else waits. True as well when the link is gone by it."""
        try:
            return self.writer.pass_by(channel, data)
        except LINK_ERRORS as exc:
            self._fail(exc)
            return True

    def check_open(self) -> None:
        """Raises SessionClosedError when the session has ended."""
        if (error := self.breakage()) is not None:
            raise error

    def breakage(self) -> SessionClosedError | None:
        """The error of a session that has ended."""
        if self._state is not State.CLOSED:
            return None
        (error := SessionClosedError(self._reason)).__cause__ = self.failure
        return error

    def charge(self, waste: yamux.Waste) -> None:
        """The peer wasted a stream. It may be its last."""
        if self.is_open:
            try:
                self.mux.charge(waste, trio.current_time())
            except RemoteProtocolError as exc:
                self._fail(exc)

    # ── its tasks ──

    async def _read(self) -> None:
        try:
            if self._early:
                self._take(self._early)
            while data := await self._link.receive_some():
                self._bytes_received += len(data)
                self._take(data)
        except LINK_ERRORS as exc:
            self._fail(exc)
        else:
            self.abort("the peer closed the link")
        finally:
            self.abort("cancelled")  # by whoever runs it

    def _take(self, data: bytes | memoryview) -> None:
        now = trio.current_time()
        self._keepalive.heard(now)
        events = self.mux.receive_data(data, now)
        for event in events:
            self._act(event)
        self.writer.heard(len(events))
        if self.mux.wants_to_send:
            self.writer.wake()
        self._host_memory.check()

    def _act(self, event: yamux.Event) -> None:
        match event:
            case yamux.ChannelReadable(channel) | yamux.ChannelFinished(channel):
                if stream := self._streams.get(channel.id):
                    stream.wake_receiver()
            case yamux.ChannelReset(channel):
                if stream := self._streams.get(channel.id):
                    stream.wake()
            case yamux.ChannelOpened(channel):
                self._begin(channel)
            case yamux.PongReceived(value):
                self._keepalive.pong(value, trio.current_time())
            case yamux.GoAwayReceived():
                if self._state is State.OPEN:
                    self._state = State.DRAINING

    def _begin(self, channel: yamux.Channel) -> None:
        if self._state is not State.OPEN:
            self.mux.reset(channel, ErrorCode.SHUTDOWN)
            self.charge(yamux.Waste.REFUSALS)
            return
        stream = self._streams[channel.id] = MuxStream.inbound(self, channel)
        self.streams_begun += 1
        self._nursery.start_soon(self._accept, stream)

    async def _write(self) -> None:
        try:
            await self.writer.run()
        except LINK_ERRORS as exc:
            self._fail(exc)

    def _progressed(self, channel: yamux.Channel) -> None:
        if (stream := self._streams.get(channel.id)) is not None:
            stream.wake_sender()

    def _fail(self, exc: trio.BrokenResourceError | RemoteProtocolError) -> None:
        if self.is_open and isinstance(exc, RemoteProtocolError):
            self.failure = exc
        self.abort(str(exc) or "the link broke")
