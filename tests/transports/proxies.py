"""Outbound proxies to dial through: one that does as it should, and ones whose whole behaviour is a function."""

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import attrs
import trio

from agentmesh.runtime.nursery import open_background
from agentmesh.transports.proxy import Proxy, ProxyRules
from agentmesh.transports.proxy_bypass import Bypass

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"

Deed = Callable[[trio.abc.Stream], Awaitable[None]]


def through(port: int, userinfo: str = "") -> ProxyRules:
    """Everything goes through the proxy at a port of this machine, even what is on this machine."""
    return ProxyRules(Proxy.parse(f"http://{userinfo}127.0.0.1:{port}"), Bypass())


async def read_head(stream: trio.abc.Stream) -> bytes:
    """A request without a body."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        data = await stream.receive_some(1)
        if not data:
            break
        head += data
    return head


@asynccontextmanager
async def open_deed(deed: Deed, context: ssl.SSLContext | None = None) -> AsyncGenerator[int]:
    """A port where `deed` is done to whoever connects, inside TLS if there is a context."""

    async def serve(tcp: trio.SocketStream) -> None:
        stream: trio.abc.Stream = tcp
        if context is not None:
            stream = trio.SSLStream(tcp, context, server_side=True, https_compatible=True)
        with suppress(trio.BrokenResourceError):
            async with stream:
                await deed(stream)

    async with open_background() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield listener.socket.getsockname()[1]


@attrs.define
class ConnectProxy:
    """A CONNECT proxy (RFC 9110, 9.3.6): when either side ends, it ends the tunnel.

    Attributes:
        names: where its targets are: an IP address for a name, or a whole place for `name:port`.
        heads: the requests that came.
    """

    names: dict[str, str] = attrs.field(factory=dict[str, str])
    heads: list[bytes] = attrs.field(factory=list[bytes])
    port: int = 0

    @property
    def targets(self) -> list[str]:
        """What it was asked for, in order."""
        return [head.split(b" ")[1].decode() for head in self.heads]

    @property
    def rules(self) -> ProxyRules:
        return through(self.port)

    async def serve(self, client: trio.abc.Stream) -> None:
        head = await read_head(client)
        if not head.startswith(b"CONNECT "):
            await client.send_all(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
            return
        self.heads.append(head)
        target = self.targets[-1]
        host, _, port = self.names.get(target, target).rpartition(":")
        try:
            server = await trio.open_tcp_stream(self.names.get(host, host.strip("[]")), int(port))
        except OSError:
            await client.send_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            return
        async with server, trio.open_nursery() as nursery:
            await client.send_all(ESTABLISHED)
            nursery.start_soon(_pump, client, server, nursery.cancel_scope)
            nursery.start_soon(_pump, server, client, nursery.cancel_scope)


async def _pump(source: trio.abc.Stream, sink: trio.abc.Stream, scope: trio.CancelScope) -> None:
    with suppress(trio.BrokenResourceError):
        async for data in source:
            await sink.send_all(data)
    scope.cancel()


@asynccontextmanager
async def open_proxy(
    names: dict[str, str] | None = None, context: ssl.SSLContext | None = None
) -> AsyncGenerator[ConnectProxy]:
    """A proxy that does as it should."""
    proxy = ConnectProxy(names or {})
    async with open_deed(proxy.serve, context) as proxy.port:
        yield proxy
