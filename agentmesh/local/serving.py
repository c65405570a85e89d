"""HTTP for programs of this machine, by the same driver that serves members: one exchange per connection.

What crosses the mesh crosses this last step unharmed so: the bytes of paths, trailers, 1xx, answers that come early.
"""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

import trio

from agentmesh.control_plane.serving import BUSY, BUSY_TIMEOUT, GRACE
from agentmesh.protocols.http import ASGIApp, serve_http
from agentmesh.runtime.nursery import open_background
from agentmesh.services.sockets import LocalStream
from agentmesh.types import PeerId

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 1024


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
