"""Connections over HTTP/2: a TCP address with `/http`, `/https`, `/tls/http` or `/tls/sni/<name>/http` behind it.

One full-duplex stream a session, for paths that let only HTTP/2 through: load balancers, gRPC ingresses. Multiaddr has
no protocol called h2, and a code of our own would make addresses that no other peer can read; nothing else of the mesh
is at `/http`, so that is HTTP/2 here: with prior knowledge in clear text (RFC 9113, 3.3), by ALPN over TLS. TLS uses
ordinary certificates, by host name: it serves the middle boxes, who is at the other end is proved inside.
"""

import ssl
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import attrs
import trio

from agentmesh.abc import ByteStream, Listener, StreamHandler
from agentmesh.transports.h2_machine import Carrier
from agentmesh.transports.h2_stream import open_connection
from agentmesh.transports.handshakes import Handshakes
from agentmesh.transports.port import PortListener
from agentmesh.transports.proxy import ProxyRules
from agentmesh.transports.serving import run_handler
from agentmesh.transports.sockets import (
    Parts,
    source_address,
)
from agentmesh.transports.web import WebTarget, WebTransport


@attrs.frozen
class H2Config:
    """The bounds of HTTP/2 connections."""

    max_streams: int = 16  # that a client, or the load balancer in front of many, may have on one connection
    handshake_timeout: float = 10.0  # seconds for TLS and the opening request, on either side
    idle_timeout: float = 60.0  # seconds that a listener keeps a connection without a stream
    max_handshakes: int = 256  # accepted connections that may be in one, or be idle, at once; the oldest gives way


class H2Transport(WebTransport):
    """Dial and listen over HTTP/2.

    Args:
        client_context: how to verify servers; the system's roots if it is None. Not to be shared with other protocols:
            its ALPN is set to h2. So is that of `server_context`.
        server_context: the certificate to serve TLS with; without it that cannot be listened on.
        config: the bounds.
        proxies: what is dialled through which proxy; what the environment says now if it is None, `DIRECT` for nothing.
    Raises:
        AddressError: the environment names a proxy that is none.
    """

    name = "HTTP/2"
    plain = "http"
    secure = "https"
    alpn = "h2"

    def __init__(
        self,
        *,
        client_context: ssl.SSLContext | None = None,
        server_context: ssl.SSLContext | None = None,
        config: H2Config | None = None,
        proxies: ProxyRules | None = None,
    ) -> None:
        self._config = config or H2Config()
        super().__init__(self._config.handshake_timeout, client_context, server_context, proxies)

    @asynccontextmanager
    async def open(
        self, wire: trio.abc.Stream, target: WebTarget, deadline: float, which: str
    ) -> AsyncGenerator[ByteStream]:
        async with (
            open_connection(wire, Carrier(client=True)) as connection,
            await connection.request(target.authority, target.scheme, deadline, which) as stream,
        ):
            yield stream

    def listener(self, listener: trio.SocketListener, suffix: Parts, context: ssl.SSLContext | None) -> Listener:
        return H2Listener(listener, suffix, context, self._config)


class H2Listener(PortListener):
    """A port that HTTP/2 clients may come to."""

    def __init__(
        self, listener: trio.SocketListener, suffix: Parts, context: ssl.SSLContext | None, config: H2Config
    ) -> None:
        super().__init__(listener, suffix)
        self._context = context
        self._config = config
        self._handshakes = Handshakes(config.max_handshakes)

    async def serve_one(self, handler: StreamHandler, tcp: trio.SocketStream) -> None:
        deadline = trio.current_time() + self._config.handshake_timeout
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(tcp)
            source = source_address(tcp)
            wire = await self._secure(tcp, deadline)
            if wire is None:
                return
            carrier = Carrier(client=False, max_streams=self._config.max_streams)
            connection = await stack.enter_async_context(open_connection(wire, carrier))
            stream = None
            with self._handshakes.place(deadline):
                stream = await connection.accept()
            async with trio.open_nursery() as nursery:
                while stream is not None:
                    nursery.start_soon(run_handler, handler, stream, source)
                    await connection.wait_idle()
                    stream = None
                    with self._handshakes.place(trio.current_time() + self._config.idle_timeout):
                        stream = await connection.accept()

    async def _secure(self, tcp: trio.SocketStream, deadline: float) -> trio.abc.Stream | None:
        """The stream under HTTP/2; None when whoever came does not speak TLS, or was too slow."""
        if self._context is None:
            return tcp
        wire = None
        with self._handshakes.place(deadline), suppress(trio.BrokenResourceError):
            tls = trio.SSLStream(tcp, self._context, server_side=True, https_compatible=True)
            await tls.do_handshake()
            wire = tls
        return wire
