"""Connections over WebSocket: what a TCP address says, and `/ws`, `/wss`, `/tls/ws` or `/tls/sni/<name>/ws` behind it.

For paths that let nothing but HTTP through. `wss` uses ordinary certificates, by host name: TLS there serves the middle
boxes, who is at the other end is proved inside, as over any transport.
"""

import logging
import ssl
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import attrs
import trio

from agentmesh.abc import ByteStream, Listener, StreamHandler
from agentmesh.errors import DialError
from agentmesh.transports.handshakes import Handshakes
from agentmesh.transports.port import PortListener
from agentmesh.transports.proxy import ProxyRules
from agentmesh.transports.sockets import (
    Parts,
    source_address,
)
from agentmesh.transports.web import WebTarget, WebTransport
from agentmesh.transports.websocket_request import read_upgrade
from agentmesh.transports.websocket_stream import Wire, accept_upgrade, open_stream, request_upgrade

logger = logging.getLogger(__name__)

PATH = "/ws"
AGENT_PATH = "/ws/agent/v1"  # the same to us; reverse proxies tell agents by it
SERVED = frozenset({PATH, AGENT_PATH})


@attrs.frozen
class WebSocketConfig:
    """The bounds of WebSocket connections."""

    max_message_bytes: int = 1024 * 1024  # of a message received; a longer one closes the connection (code 1009)
    handshake_timeout: float = 10.0  # seconds for TLS and the HTTP exchange, on either side
    max_handshakes: int = 256  # accepted connections that may be in one at once; the oldest gives way


class WebSocketTransport(WebTransport):
    """Dial and listen over WebSocket.

    Args:
        client_context: how to verify servers; the system's roots if it is None.
        server_context: the certificate to serve `wss` with; without it that cannot be listened on.
        config: the bounds.
        proxies: what is dialled through which proxy; what the environment says now if it is None, `DIRECT` for nothing.
        path: what to ask servers for. Listening is at all paths that there are.
    Raises:
        AddressError: the environment names a proxy that is none.
    """

    name = "WebSocket"
    plain = "ws"
    secure = "wss"

    def __init__(
        self,
        *,
        client_context: ssl.SSLContext | None = None,
        server_context: ssl.SSLContext | None = None,
        config: WebSocketConfig | None = None,
        proxies: ProxyRules | None = None,
        path: str = PATH,
    ) -> None:
        self._config = config or WebSocketConfig()
        self._path = path
        super().__init__(self._config.handshake_timeout, client_context, server_context, proxies)

    def open(
        self, wire: trio.abc.Stream, target: WebTarget, deadline: float, which: str
    ) -> AbstractAsyncContextManager[ByteStream]:
        opening = request_upgrade(target.authority, self._path, self._config.max_message_bytes)
        return open_stream(Wire(wire, deadline), opening, which)

    def listener(self, listener: trio.SocketListener, suffix: Parts, context: ssl.SSLContext | None) -> Listener:
        return WebSocketListener(listener, suffix, context, self._config)


class WebSocketListener(PortListener):
    """A port that WebSocket clients may come to."""

    def __init__(
        self, listener: trio.SocketListener, suffix: Parts, context: ssl.SSLContext | None, config: WebSocketConfig
    ) -> None:
        super().__init__(listener, suffix)
        self._context = context
        self._config = config
        self._handshakes = Handshakes(config.max_handshakes)

    async def serve_one(self, handler: StreamHandler, tcp: trio.SocketStream) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(tcp)
            source = source_address(tcp)
            wire = await self._receive_request(tcp)
            if wire is None:
                return
            try:
                opening = accept_upgrade(self._config.max_message_bytes)
                stream = await stack.enter_async_context(open_stream(wire, opening, f"from {source}"))
            except DialError as exc:
                logger.debug("no handshake", extra={"source": source, "reason": exc})
                return
            await handler(stream, source)

    async def _receive_request(self, tcp: trio.SocketStream) -> Wire | None:
        """The wire with the opening request in it; None when whoever came was no client of ours, or was too slow."""
        deadline = trio.current_time() + self._config.handshake_timeout
        carrier: trio.abc.Stream = tcp
        request = None
        with self._handshakes.place(deadline):
            try:
                if self._context is not None:
                    carrier = trio.SSLStream(tcp, self._context, server_side=True, https_compatible=True)
                request = await read_upgrade(carrier, SERVED)
            except trio.BrokenResourceError:
                return None
        return None if request is None else Wire(carrier, deadline, request)
