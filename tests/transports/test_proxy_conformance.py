"""The conformance suite through an outbound proxy: what a transport promises, it keeps in a tunnel."""

import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agentmesh.abc import ByteStream, Listener, StreamHandler, Transport
from agentmesh.runtime.nursery import open_background
from agentmesh.testing import check_transport
from agentmesh.testing.transport_setup import echo, receive_pattern, send_pattern
from agentmesh.transports.h2 import H2Transport
from agentmesh.transports.proxy import Proxy, ProxyRules
from agentmesh.transports.proxy_tunnel import TunnelStream
from agentmesh.transports.tcp import TcpTransport
from agentmesh.transports.websocket import WebSocketTransport
from agentmesh.types import Address
from tests.transports.certificates import Authority
from tests.transports.proxies import open_proxy

TCP = Address.parse("/ip4/127.0.0.1/tcp/0")


class WholeListener(Listener):
    """Gives connections that cannot be closed by halves, as no tunnel can, from either end."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    @property
    def addresses(self) -> Sequence[Address]:
        return self._listener.addresses

    async def serve(self, handler: StreamHandler) -> None:
        async def whole(stream: ByteStream, source: Address | None) -> None:
            await handler(TunnelStream(stream, b""), source)

        await self._listener.serve(whole)


class WholeTcp(TcpTransport):
    """TCP as it is at the far end of a tunnel."""

    @asynccontextmanager
    async def listen(self, address: Address) -> AsyncGenerator[Listener]:
        async with super().listen(address) as listener:
            yield WholeListener(listener)


TRANSPORTS: dict[str, tuple[Address, Callable[[ProxyRules], Transport], Transport]] = {
    "tcp": (TCP, lambda rules: TcpTransport(proxies=rules), WholeTcp()),
    "ws": (TCP / "ws", lambda rules: WebSocketTransport(proxies=rules), WebSocketTransport()),
    "h2": (TCP / "http", lambda rules: H2Transport(proxies=rules), H2Transport()),
}


async def test_conforms() -> None:
    """TCP; test_proxy_tinyproxy.py has them all."""
    address, dialing, listening = TRANSPORTS["tcp"]
    async with open_proxy() as proxy:

        @asynccontextmanager
        async def make() -> AsyncGenerator[tuple[Transport, Transport]]:
            yield dialing(proxy.rules), listening

        await check_transport(make, address, connections=16)
        assert len(proxy.targets) > 50


@pytest.mark.parametrize("suffix", ["tls/ws", "tls/http"])
async def test_tls_of_the_target_is_inside_the_tunnel_and_the_proxys_outside(tmp_path: Path, suffix: str) -> None:
    authority = Authority()
    server, proxys = (
        authority.server_context(tmp_path, "router.example"),
        authority.server_context(tmp_path, "127.0.0.1"),
    )
    listening = WebSocketTransport if suffix.endswith("ws") else H2Transport
    async with (
        listening(server_context=server).listen(TCP / suffix) as listener,
        open_background() as nursery,
        open_proxy({"router.example": "127.0.0.1"}, proxys) as proxy,
    ):
        nursery.start_soon(listener.serve, echo)
        port = listener.addresses[0].value("tcp")
        via = Proxy.parse(f"https://127.0.0.1:{proxy.port}", tls=authority.client_context())
        dialing = listening(client_context=authority.client_context(), proxies=ProxyRules(via))
        async with dialing.dial(Address.parse(f"/dns/router.example/tcp/{port}/{suffix}")) as stream:
            await send_pattern(stream, 100_000, random.Random(0))
            await receive_pattern(stream, 100_000, random.Random(1))
        assert proxy.targets == [f"router.example:{port}"]
