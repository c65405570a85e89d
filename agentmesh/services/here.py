"""A member's own services, called by itself: over a pair of sockets, with all that a call from outside has."""

import logging
from contextlib import ExitStack
from typing import NoReturn

import attrs
import trio

from agentmesh.protocols.http import ASGIApp, Receive, Scope, Send, serve_http
from agentmesh.services.dispatch import app_of
from agentmesh.services.headers import without_mesh
from agentmesh.services.sockets import LocalStream
from agentmesh.services.table import ServiceKey, ServiceTable
from agentmesh.types import PeerId

logger = logging.getLogger(__name__)


@attrs.frozen
class Mounted:
    """A service as its member sees it."""

    service: ServiceKey
    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        mounted = {"headers": without_mesh(scope["headers"]), "root_path": f"/{self.service.type}/{self.service.name}"}
        await self.app({**scope, **mounted}, receive, send)


class Here:
    """Answers for the services of a table, for as long as `run` runs.

    Args:
        table: the services.
        own: this member, who is the caller too.
    """

    def __init__(self, table: ServiceTable, own: PeerId) -> None:
        self._table = table
        self._own = own
        self._opened, self._accepted = trio.open_memory_channel[tuple[trio.SocketStream, ASGIApp]](0)

    async def open(self, service: ServiceKey) -> trio.SocketStream | None:
        """A connection for one exchange; None when this member does not serve it. Cancellation: safe."""
        target = self._table.lookup(service.type, service.name)
        if target is None:
            await trio.lowlevel.checkpoint()
            return None
        with ExitStack() as undo:
            ours, theirs = trio.socket.socketpair()
            undo.callback(ours.close)
            undo.callback(theirs.close)
            await self._opened.send((trio.SocketStream(theirs), Mounted(service, app_of(service, target))))
            undo.pop_all()
        return trio.SocketStream(ours)

    async def run(self) -> NoReturn:
        """Serve what is opened, until cancelled."""
        async with trio.open_nursery() as nursery:
            async for connection, app in self._accepted:
                nursery.start_soon(self._serve, connection, app)
        raise AssertionError("nobody closes the channel")

    async def _serve(self, connection: trio.SocketStream, app: ASGIApp) -> None:
        async with connection:
            stream = LocalStream(connection, self._own)
            try:
                await serve_http(stream, app)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                logger.debug("connection failed", extra={"reason": exc})
            except trio.Cancelled:
                stream.reset()
                raise
