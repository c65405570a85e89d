"""Serves an ASGI app on a socket: Hypercorn's Trio worker behind our own listeners and time limits.

Hypercorn's own `serve` has one time limit for reading and none for writing, and one connection that fails in an
unforeseen way ends it. So we accept ourselves and give Hypercorn each connection; HTTP/1.1 and HTTP/2 are its work.
"""

import logging
import math
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config as HypercornConfig
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from starlette.types import ASGIApp, Receive, Scope, Send

from agentmesh.runtime.nursery import open_background

logger = logging.getLogger(__name__)

HEADER_TIMEOUT = 10.0  # seconds from the first byte of a request until its header is there
WRITE_TIMEOUT = 30.0  # seconds that a client may take to accept what is written to it
IDLE_TIMEOUT = 120.0  # seconds that a connection may wait for its next request
LINGER = 1.0  # seconds that a connection whose other end is gone is kept
GRACE = 3.0  # seconds for requests under way when we stop
MAX_CONNECTIONS = 4096
BUSY_TIMEOUT = 1.0  # seconds to tell one more that
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
HTTP2_PREFACE = b"PRI * HTTP/2"


class TimedStream(trio.abc.Stream):
    """A connection with limits on how long its other end may take.

    The time for a header runs while bytes have come and no request is being answered; HTTP/2, whose frames come
    between requests too, is left to the idle limit.

    Attributes:
        scope: the connection's; cancelled when nothing more is to be expected of it. Hypercorn by itself would keep a
            connection whose other end is gone until it has been idle for long enough.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self.scope = trio.CancelScope()
        self._stream = stream
        self._requests = 0  # being answered
        self._http2 = self._gone = False
        self._header_deadline = self._end = math.inf
        self._reading, self._writing = trio.CancelScope(), trio.CancelScope()

    @property
    def socket(self) -> trio.socket.SocketType:
        return self._stream.socket

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        with trio.CancelScope(deadline=self._header_deadline) as self._reading, self._noticing_the_end():
            data = await self._stream.receive_some(max_bytes)
            self._http2 |= data.startswith(HTTP2_PREFACE)
            if not data:
                self._other_end_is_gone()
            elif not self._requests and not self._http2 and self._header_deadline == math.inf:
                self._header_deadline = trio.current_time() + HEADER_TIMEOUT
            return data
        self._other_end_is_gone()
        raise trio.BrokenResourceError("the header of a request took too long")

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        deadline = min(trio.current_time() + WRITE_TIMEOUT, self._end)
        with trio.CancelScope(deadline=deadline) as self._writing, self._noticing_the_end():
            return await self._stream.send_all(data)
        self._other_end_is_gone()
        raise trio.BrokenResourceError("the other end does not read")

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def end_by(self, deadline: float) -> None:
        """Let no write last beyond `deadline`. Hypercorn shields its writes, so cancelling it is not enough."""
        self._end = deadline
        self._writing.deadline = min(self._writing.deadline, deadline)

    def watch(self, app: ASGIApp) -> ASGIApp:
        """The app, telling this stream when a request begins and ends."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            self._requests += 1
            self._header_deadline = self._reading.deadline = self.scope.deadline = math.inf
            try:
                await app(scope, receive, send)
            finally:
                self._requests -= 1
                self._linger()

        return watched

    @contextmanager
    def _noticing_the_end(self) -> Generator[None]:
        try:
            yield
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._other_end_is_gone()
            raise

    def _other_end_is_gone(self) -> None:
        self._gone = True
        self._linger()

    def _linger(self) -> None:
        # Not at once: a request that has come with the end of the stream may be about to begin.
        if self._gone and not self._requests:
            self.scope.deadline = trio.current_time() + LINGER


class HttpServer:
    """The connections of one server."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._streams: set[TimedStream] = set()
        self._accepting, self._ended = trio.CancelScope(), trio.Event()
        self._context = WorkerContext(None)
        self._config = HypercornConfig()
        self._config.accesslog, self._config.errorlog = None, logger
        self._config.keep_alive_timeout = cast(Any, IDLE_TIMEOUT)
        self._config.include_date_header = self._config.include_server_header = False

    async def run(self, listeners: Sequence[trio.SocketListener]) -> None:
        """Accept until `drain` is called, then return when the last connection has ended."""
        async with trio.open_nursery() as connections:
            with self._accepting:
                await trio.serve_listeners(self._handle, list(listeners), handler_nursery=connections)
        self._ended.set()

    async def drain(self) -> None:
        """Close idle connections, give requests under way GRACE seconds."""
        self._accepting.cancel()
        await self._context.terminated.set()
        deadline = trio.current_time() + GRACE
        self._end_by(deadline)
        with trio.move_on_at(deadline):
            await self._ended.wait()

    def cut(self) -> None:
        """Let no connection outlive its cancellation."""
        self._end_by(trio.current_time())

    def _end_by(self, deadline: float) -> None:
        for stream in self._streams:
            stream.end_by(deadline)

    async def _handle(self, connection: trio.SocketStream) -> None:
        """Answer the requests of one connection. Whatever becomes of it, it does not reach the others."""
        async with connection:
            if len(self._streams) >= MAX_CONNECTIONS:
                with trio.move_on_after(BUSY_TIMEOUT):
                    await connection.send_all(BUSY)
                return
            stream = TimedStream(connection)
            self._streams.add(stream)
            try:
                with stream.scope:
                    await self._talk(stream)
            finally:
                self._streams.discard(stream)

    async def _talk(self, stream: TimedStream) -> None:
        app = ASGIWrapper(cast(Any, stream.watch(self._app)))
        try:
            await TCPServer(app, self._config, self._context, ConnectionState({}), cast(Any, stream)).run()
        except (ExceptionGroup, OSError, trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            logger.warning("connection failed", exc_info=exc)


@asynccontextmanager
async def serve_http(app: ASGIApp, host: str, port: int) -> AsyncGenerator[str]:
    """Serve `app` for as long as the block lasts; then requests under way get GRACE seconds.

    Args:
        host: a name or an address.
        port: 0 takes any free one.
    Returns:
        The URL to reach it at from this machine.
    Raises:
        OSError: the address is taken or not ours.
    Cancellation: ends it without grace.
    """
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except OSError as exc:
        raise OSError(exc.errno, f"cannot listen on {host}:{port}: {exc.strerror}") from exc
    server = HttpServer(app)
    async with open_background() as background:
        background.start_soon(server.run, listeners)
        try:
            yield _url_of(listeners[0])
            await server.drain()
        finally:
            server.cut()


def _url_of(listener: trio.SocketListener) -> str:
    name: tuple[str, int] = listener.socket.getsockname()[:2]
    host, port = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name[0], name[0]), name[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
