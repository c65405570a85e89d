from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agentmesh.abc import Transport
from agentmesh.testing import check_transport
from agentmesh.transports.websocket import WebSocketTransport
from agentmesh.types import Address
from tests.transports.certificates import Authority


async def test_conforms() -> None:
    @asynccontextmanager
    async def make() -> AsyncGenerator[tuple[Transport, Transport]]:
        yield WebSocketTransport(), WebSocketTransport()

    await check_transport(make, Address.parse("/ip4/127.0.0.1/tcp/0/ws"))


@pytest.mark.parametrize("suffix", ["wss", "tls/ws"])
async def test_conforms_over_tls(tmp_path: Path, suffix: str) -> None:
    authority = Authority()
    client = WebSocketTransport(client_context=authority.client_context())
    server = WebSocketTransport(server_context=authority.server_context(tmp_path, "127.0.0.1"))

    @asynccontextmanager
    async def make() -> AsyncGenerator[tuple[Transport, Transport]]:
        yield client, server

    await check_transport(make, Address.parse(f"/ip4/127.0.0.1/tcp/0/{suffix}"))
