"""HTTP for programs of this machine, by the same driver that serves members: one exchange per connection.

What crosses the mesh crosses this last step unharmed so: the bytes of paths, trailers, 1xx, answers that come early.
"""

import logging
import select
import socket
import struct
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

import trio

from agentmesh.abc import PeerStream
from agentmesh.control_plane.serving import BUSY, BUSY_TIMEOUT, GRACE
from agentmesh.protocols.http import ASGIApp, serve_http
from agentmesh.runtime.nursery import open_background
from agentmesh.types import PeerId

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 1024
LOOK_INTERVAL = 0.5  # seconds between two looks whether an asker is there whose request nobody reads
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: what was cut must not look like what has ended


class LocalStream(PeerStream):
    """A connection of a program of this machine, which speaks as the node itself.

    Its end is that of the asker: whoever closes a connection before the answer is there does not wait for it.
    """

    def __init__(self, stream: trio.SocketStream, peer: PeerId) -> None:
        self._stream = stream
        self._peer = peer
        self._broken = trio.Event()

    @property
    def peer(self) -> PeerId:
        return self._peer

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        with self._noticing():
            if data := await self._stream.receive_some(max_bytes):
                return data
            raise trio.BrokenResourceError("the asker left")

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        with self._noticing():
            await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        with self._noticing():
            await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def reset(self, code: int = 0) -> None:
        if self._stream.socket.fileno() >= 0:
            self._stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self._stream.socket.close()

    async def wait_broken(self) -> trio.BrokenResourceError:
        while not self._broken.is_set():
            with trio.move_on_after(LOOK_INTERVAL):
                await self._broken.wait()
            if self._is_left():
                self._broken.set()
        return trio.BrokenResourceError("the asker left")

    def _is_left(self) -> bool:
        """Whether the asker closed its end, also behind bytes that nobody has read."""
        looking = select.poll()
        looking.register(self._stream.socket.fileno(), select.POLLRDHUP)
        return bool(looking.poll(0))

    @contextmanager
    def _noticing(self) -> Generator[None]:
        try:
            yield
        except trio.BrokenResourceError:
            self._broken.set()
            raise


class LocalServer:
    """The connections of one listener or several.

    Args:
        app: an ASGI application.
        peer: who asks, as the application sees it.
    """

    def __init__(self, app: ASGIApp, peer: PeerId) -> None:
        self._app = app
        self._peer = peer
        self._open = 0
        self._accepting = trio.CancelScope()

    async def run(self, listeners: Sequence[trio.SocketListener]) -> None:
        """Accept until `stop` is called; return when the last request has been answered, or GRACE seconds later."""
        async with trio.open_nursery() as connections:
            with self._accepting:
                await trio.serve_listeners(self._handle, list(listeners), handler_nursery=connections)
            connections.cancel_scope.deadline = trio.current_time() + GRACE

    def stop(self) -> None:
        self._accepting.cancel()

    async def _handle(self, connection: trio.SocketStream) -> None:
        async with connection:
            if self._open >= MAX_CONNECTIONS:
                with trio.move_on_after(BUSY_TIMEOUT), suppress(trio.BrokenResourceError):
                    await connection.send_all(BUSY)
                return
            self._open += 1
            stream = LocalStream(connection, self._peer)
            try:
                await serve_http(stream, self._app)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                logger.debug("connection failed", extra={"reason": exc})
            except trio.Cancelled:
                stream.reset()
                raise
            finally:
                self._open -= 1


@asynccontextmanager
async def serve_local(app: ASGIApp, peer: PeerId, listeners: Sequence[trio.SocketListener]) -> AsyncGenerator[None]:
    """Serve `app` for as long as the block lasts; then requests under way get GRACE seconds.

    Cancellation: ends it without grace.
    """
    server, ended = LocalServer(app, peer), trio.Event()

    async def run() -> None:
        await server.run(listeners)
        ended.set()

    async with open_background() as background:
        background.start_soon(run)
        yield
        server.stop()
        await ended.wait()
