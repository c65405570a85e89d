"""The interfaces between the layers: what a transport gives the runtime, what the runtime gives a protocol."""

import abc
import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol as Interface

import attrs
import trio

from agentmesh.types import Address, PeerId, ProtocolId

ByteStream = trio.abc.Stream
StreamHandler = Callable[[ByteStream, Address | None], Awaitable[None]]  # the connection, and where it comes from


class Listener(abc.ABC):
    """A transport listening on one address. Made by `Transport.listen`, closed by leaving its block."""

    @property
    @abc.abstractmethod
    def addresses(self) -> Sequence[Address]:
        """Where it can be dialled: port 0 and the like are resolved. No /p2p part."""

    @abc.abstractmethod
    async def serve(self, handler: StreamHandler) -> None:
        """Accept until cancelled; each connection runs `handler(stream, source)` in a task of its own.

        `source` is the remote address as the transport sees it (/ip4/…/tcp/…), None when it cannot say.

        The connection is closed when its handler returns. A handler must not raise: an exception from one ends the
        listener. Running out of file descriptors pauses accepting and does not end it.

        Cancellation: closes every connection and returns.
        """


class Transport(abc.ABC):
    """A way to carry one byte stream to an address.

    Both operations are async context managers, because some transports (WebSocket, HTTP/2) need tasks of their own for
    as long as a connection lives; those tasks belong to the block.
    """

    @abc.abstractmethod
    def can_dial(self, address: Address) -> bool: ...

    @abc.abstractmethod
    def can_listen(self, address: Address) -> bool: ...

    @abc.abstractmethod
    def dial(self, address: Address) -> AbstractAsyncContextManager[ByteStream]:
        """`async with transport.dial(address) as stream:`; the connection closes with the block.

        Raises:
            DialError: nobody answered, or not in this transport's protocol.
            AddressError: not an address this transport speaks.
        """

    @abc.abstractmethod
    def listen(self, address: Address) -> AbstractAsyncContextManager[Listener]:
        """`async with transport.listen(address) as listener:`; listening (the port is bound) from the start of the
        block.

        Raises:
            OSError: the address is taken or not ours.
            AddressError: not an address this transport speaks.
        """


class NowaitSender(abc.ABC):
    """A byte stream that can take bytes without an await, where it has room for them."""

    @abc.abstractmethod
    def send_nowait(self, data: bytes | memoryview) -> int:
        """Take what there is room for now, and say how much that is. 0 also when the stream is gone: `send_all` says
        why. Not while `send_all` runs.
        """


class BufferReceiver(abc.ABC):
    """A byte stream that can receive into memory which is there already."""

    @abc.abstractmethod
    async def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes, put them at the beginning of the buffer, and say how many; 0 at the end of the stream.

        Nothing is awaited once they are there, so that one buffer may serve many streams. For the rest as
        `receive_some`.
        """


class Link(abc.ABC):
    """A secure path to an authenticated peer: what a session needs, and all that it knows of sockets.

    Attributes:
        peer: who is at the other end.
    """

    peer: PeerId

    @abc.abstractmethod
    def write(self, data: bytes) -> bool:
        """Take bytes for the peer, and send what can be sent without waiting. False when `flush` has to send the rest.

        Raises:
            trio.BrokenResourceError: an earlier `flush` was cut off.
        """

    @abc.abstractmethod
    async def flush(self) -> None:
        """Send what `write` could not. Raises trio.BrokenResourceError when the path is gone."""

    async def send_all(self, data: bytes) -> None:
        """`write`, and `flush` when it is needed; a checkpoint only then."""
        if not self.write(data):
            await self.flush()

    @abc.abstractmethod
    async def receive_some(self) -> memoryview:
        """What has come, empty at the end. The memory is shared: take the bytes before the next await.

        Raises:
            trio.BrokenResourceError: the path is gone.
            RemoteProtocolError: what came is not from the peer, or not whole.
        """

    @abc.abstractmethod
    async def aclose(self) -> None: ...


class DataStream(trio.abc.HalfCloseableStream, NowaitSender, BufferReceiver):
    """A connection that carries the bytes of one circuit, and nothing else."""

    @abc.abstractmethod
    def close_now(self) -> None:
        """Close without a checkpoint. Whoever waits on it gets ClosedResourceError."""


class DataDialer(abc.ABC):
    """A transport that can give a circuit a connection of its own, on which a router moves bytes by `Splicer`."""

    @abc.abstractmethod
    def can_carry(self, address: Address) -> bool:
        """Whether `dial_data` takes such an address."""

    @abc.abstractmethod
    async def dial_data(self, address: Address) -> DataStream:
        """A connection, the caller's to close.

        Raises:
            DialError: nobody answered.
            AddressError: not an address for this.
        Cancellation: safe; no connection is left.
        """


class Moved(enum.Enum):
    """Why `Splicer.move` has returned."""

    ENDED = "the source has ended"
    LIMIT = "the source has more than may be moved"
    SOURCE_BROKE = "the source broke"
    SINK_BROKE = "the sink broke"


class Splicer(abc.ABC):
    """Moves bytes from one connection to another, below Python where that can be.

    Attributes:
        method: how, for statistics: "splice" in the kernel, or "copy".
    """

    method: str

    @abc.abstractmethod
    def take(self, stream: ByteStream) -> trio.abc.HalfCloseableStream | None:
        """An accepted connection, made ready to be moved from and to; None when it is none that can be."""

    @abc.abstractmethod
    async def move(
        self,
        source: trio.abc.HalfCloseableStream,
        sink: trio.abc.HalfCloseableStream,
        max_bytes: int | None,
        count: Callable[[int], None],
    ) -> Moved:
        """Move bytes until the source ends or either breaks; ends neither. Both are from `take`.

        Args:
            max_bytes: how many at most, None for no limit.
            count: told of each piece when it is handed on, synchronously.
        Cancellation: safe. What had left the source and was not handed on is lost.
        """


class Direction(enum.Enum):
    INBOUND = "inbound"
    OUTBOUND = "outbound"


class PeerStream(trio.abc.HalfCloseableStream):
    """Bytes to and from somebody who is known; either side can cut them."""

    @property
    @abc.abstractmethod
    def peer(self) -> PeerId:
        """Who is at the other end. Of a stream of the mesh: proved by the session's handshake."""

    @abc.abstractmethod
    def reset(self, code: int = 0) -> None:
        """Cut both directions now; the peer sees `code` (an `ErrorCode`). Does nothing on a stream that has ended."""

    @abc.abstractmethod
    async def wait_broken(self) -> trio.BrokenResourceError:
        """Wait, beside whoever sends and receives, until nothing sent on this stream arrives any more.

        Returns:
            What sending would raise: StreamResetError when the peer cut the stream (`finished` when what it sent is all
            there to be read), SessionClosedError when the session ended.
        Raises:
            ClosedResourceError: the stream was closed on this side.
        """


class Stream(PeerStream):
    """One stream of a session. Anything written for Trio streams works on it.

    Errors: `RejectedError` when the peer refused the stream, `StreamResetError` when it cut it, `SessionClosedError`
    when the session ended; all three are `trio.BrokenResourceError`.

    Cancellation: safe everywhere. A cancelled `receive_some` loses nothing. A cancelled `send_all` may have queued all,
    part or none of its bytes, as with any Trio stream. `aclose` that is cancelled resets the stream.
    """

    protocol: ProtocolId
    direction: Direction

    @property
    @abc.abstractmethod
    def session(self) -> "Session": ...


class Session(abc.ABC):
    """One authenticated peer over one link."""

    peer: PeerId
    direction: Direction
    address: Address | None  # of the peer as dialled or seen; None when the transport cannot say

    @abc.abstractmethod
    async def open_stream(self, protocol: ProtocolId) -> Stream:
        """Open a stream; costs no round trip: the protocol's name leaves with the first bytes.

        Raises:
            SessionClosedError: the session has ended.
            RejectedError: our own limit on streams is reached (RESOURCE_LIMIT_EXCEEDED) or the session drains
            (SHUTDOWN).
        A refusal by the peer surfaces at the first `receive_some`.
        """


class Admission(enum.IntEnum):
    """Who may open a protocol's streams."""

    ANYONE = 0
    MEMBER = 1  # any peer that auth has admitted
    ROUTER = 2  # an admitted peer whose credential says router


@attrs.frozen
class StreamLimits:
    """What one peer may use of one protocol."""

    max_streams_per_peer: int = 1024  # open at once, inbound


class OpenStream(Interface):
    """What a client of a protocol needs: a way to open its streams (`Host.open_stream`)."""

    async def __call__(self, peer: PeerId, protocol: ProtocolId) -> Stream: ...


Receiver = AsyncIterator[bytes]
