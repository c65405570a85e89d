"""Connections over TCP: `/ip4|ip6|dns|dns4|dns6/<host>/tcp/<port>`, to dial also with `/tls` or `/tls/sni/<name>`.

The streams are Trio's own socket streams, or tunnels through an outbound proxy. Names can be dialled but not listened
on; port 0 listens on a free one. A circuit may have a connection of its own, where no proxy is between.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from agentmesh.abc import ByteStream, DataDialer, DataStream, Listener, StreamHandler, Transport
from agentmesh.errors import AddressError
from agentmesh.runtime.direct import receive_into, send_nowait
from agentmesh.transports.port import PortListener
from agentmesh.transports.proxy import ProxyRules
from agentmesh.transports.serving import run_handler
from agentmesh.transports.sockets import (
    Endpoint,
    connect,
    connect_directly,
    keep_alive,
    listen_tcp,
    source_address,
    split_endpoint,
)
from agentmesh.types import Address


class TcpListener(PortListener):
    """A port that is listened on."""

    async def serve_one(self, handler: StreamHandler, tcp: trio.SocketStream) -> None:
        await run_handler(handler, tcp, source_address(tcp))


class DataSocket(DataStream):
    """A socket for one circuit's bytes."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    def send_nowait(self, data: bytes | memoryview) -> int:
        return send_nowait(self._stream, data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def receive_into(self, buffer: memoryview) -> int:
        return await receive_into(self._stream, buffer)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def close_now(self) -> None:
        self._stream.socket.close()


class TcpTransport(Transport, DataDialer):
    """Dial and listen over TCP.

    Args:
        proxies: what is dialled through which proxy; what the environment says now if it is None, `DIRECT` for nothing.
    Raises:
        AddressError: the environment names a proxy that is none.
    """

    def __init__(self, *, proxies: ProxyRules | None = None) -> None:
        self._proxies = ProxyRules.from_environment() if proxies is None else proxies

    def can_dial(self, address: Address) -> bool:
        endpoint = _dialed_endpoint(address)
        return endpoint is not None and endpoint.port > 0

    def can_listen(self, address: Address) -> bool:
        endpoint = tcp_endpoint(address)
        return endpoint is not None and endpoint.is_literal

    @asynccontextmanager
    async def dial(self, address: Address) -> AsyncGenerator[ByteStream]:
        endpoint = _dialed_endpoint(address)
        if endpoint is None or not endpoint.port:
            raise AddressError(f"not an address to dial over TCP: {address}")
        async with await connect(endpoint, address, self._proxies) as stream:
            yield stream

    @asynccontextmanager
    async def listen(self, address: Address) -> AsyncGenerator[Listener]:
        endpoint = tcp_endpoint(address)
        if endpoint is None or not endpoint.is_literal:
            raise AddressError(f"not an address to listen on over TCP: {address}")
        async with await listen_tcp(endpoint) as listener:
            yield TcpListener(listener)

    def can_carry(self, address: Address) -> bool:
        endpoint = tcp_endpoint(address)
        if endpoint is None or not endpoint.port:
            return False
        return self._proxies.proxy_for(endpoint.in_ascii.host, endpoint.port) is None

    async def dial_data(self, address: Address) -> DataStream:
        endpoint = tcp_endpoint(address)
        if endpoint is None or not self.can_carry(address):
            raise AddressError(f"not an address of a connection for a circuit: {address}")
        stream = await connect_directly(endpoint, address)
        keep_alive(stream)
        return DataSocket(stream)


def tcp_endpoint(address: Address) -> Endpoint | None:
    """The endpoint of an address that is TCP and nothing more, None of any other."""
    match split_endpoint(address):
        case (Endpoint() as endpoint, ()):
            return endpoint
        case _:
            return None


def _dialed_endpoint(address: Address) -> Endpoint | None:
    """The endpoint of an address of TCP, be TLS what comes first in it (`Address.tls_name`) or not."""
    match split_endpoint(address):
        case (Endpoint() as endpoint, () | (("tls", None),) | (("tls", None), ("sni", _))):
            return endpoint
        case _:
            return None
