"""Connections over WebSocket: what a TCP address says, and `/ws`, `/wss`, `/tls/ws` or `/tls/sni/<name>/ws` behind it.

For paths that let nothing but HTTP through. `wss` uses ordinary certificates, by host name: TLS there serves the middle
boxes, who is at the other end is proved inside, as over any transport.
"""

import functools
import logging
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import trio

from agentmesh.abc import ByteStream, Listener, StreamHandler, Transport
from agentmesh.errors import AddressError, DialError
from agentmesh.transports.handshakes import Handshakes
from agentmesh.transports.proxy import ProxyRules
from agentmesh.transports.sockets import (
    Parts,
    accept_forever,
    bound_addresses,
    connect,
    listen_tcp,
    source_address,
)
from agentmesh.transports.web import WebTarget, verify_server
from agentmesh.transports.websocket_request import read_upgrade
from agentmesh.transports.websocket_stream import Wire, accept_upgrade, open_stream, request_upgrade
from agentmesh.types import Address

logger = logging.getLogger(__name__)

PATH = "/ws"


@attrs.frozen
class WebSocketConfig:
    """The bounds of WebSocket connections."""

    max_message_bytes: int = 1024 * 1024  # of a message received; a longer one closes the connection (code 1009)
    handshake_timeout: float = 10.0  # seconds for TLS and the HTTP exchange, on either side
    max_handshakes: int = 256  # accepted connections that may be in one at once; the oldest gives way


class WebSocketTransport(Transport):
    """Dial and listen over WebSocket.

    Args:
        client_context: how to verify servers; the system's roots if it is None.
        server_context: the certificate to serve `wss` with; without it that cannot be listened on.
        config: the bounds.
        proxies: what is dialled through which proxy; what the environment says now if it is None, `DIRECT` for nothing.
    Raises:
        AddressError: the environment names a proxy that is none.
    """

    def __init__(
        self,
        *,
        client_context: ssl.SSLContext | None = None,
        server_context: ssl.SSLContext | None = None,
        config: WebSocketConfig | None = None,
        proxies: ProxyRules | None = None,
    ) -> None:
        self._given_client_context = client_context
        self._server_context = server_context
        self._config = config or WebSocketConfig()
        self._proxies = ProxyRules.from_environment() if proxies is None else proxies

    def can_dial(self, address: Address) -> bool:
        target = _target(address)
        return target is not None and target.endpoint.port > 0

    def can_listen(self, address: Address) -> bool:
        target = _target(address)
        if target is None or not target.endpoint.is_literal:
            return False
        return target.server_name is None or self._server_context is not None

    @asynccontextmanager
    async def dial(self, address: Address) -> AsyncGenerator[ByteStream]:
        target = _target(address)
        if target is None or not target.endpoint.port:
            raise AddressError(f"not an address to dial over WebSocket: {address}")
        async with await connect(target.endpoint, address, self._proxies) as tcp:
            deadline = trio.current_time() + self._config.handshake_timeout
            carrier: trio.abc.Stream = tcp
            if target.server_name is not None:
                carrier = await verify_server(tcp, self._client_context, target.server_name, address, deadline)

            opening = request_upgrade(target.authority, PATH, self._config.max_message_bytes)
            async with open_stream(Wire(carrier, deadline), opening, f"to {address}") as stream:
                yield stream

    @functools.cached_property
    def _client_context(self) -> ssl.SSLContext:
        return self._given_client_context or ssl.create_default_context()

    @asynccontextmanager
    async def listen(self, address: Address) -> AsyncGenerator[Listener]:
        target = _target(address)
        if target is None or not self.can_listen(address):
            raise AddressError(f"not an address to listen on over WebSocket: {address}")
        context = self._server_context if target.server_name is not None else None
        async with await listen_tcp(target.endpoint) as listener:
            yield WebSocketListener(listener, target.suffix, context, self._config)


class WebSocketListener(Listener):
    """A port that WebSocket clients may come to."""

    def __init__(
        self, listener: trio.SocketListener, suffix: Parts, context: ssl.SSLContext | None, config: WebSocketConfig
    ) -> None:
        self._listener = listener
        self._suffix = suffix
        self._context = context
        self._config = config
        self._handshakes = Handshakes(config.max_handshakes)

    @property
    def addresses(self) -> Sequence[Address]:
        return bound_addresses(self._listener, self._suffix)

    async def serve(self, handler: StreamHandler) -> None:
        async with trio.open_nursery() as nursery:

            def start(tcp: trio.SocketStream) -> None:
                nursery.start_soon(self._serve_one, handler, tcp)

            await accept_forever(self._listener, start)

    async def _serve_one(self, handler: StreamHandler, tcp: trio.SocketStream) -> None:
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
                request = await read_upgrade(carrier, PATH)
            except trio.BrokenResourceError:
                return None
        return None if request is None else Wire(carrier, deadline, request)


def _target(address: Address) -> WebTarget | None:
    return WebTarget.of(address, "ws", "wss")
