"""Circuits of nodes on connections of their own, and the ways to have none."""

from pathlib import Path

import pytest

from agentmesh.abc import Transport
from agentmesh.protocols.relay import DataPathConfig, RelayConfig
from agentmesh.transports.tcp import TcpTransport
from agentmesh.transports.websocket import WebSocketTransport
from tests.node.loopback import app, open_loopback, url_of

OFF = RelayConfig(data_path=DataPathConfig(enabled=False))


async def spliced(folder: Path, transport: Transport, *, callee: bool = True, **settings: object) -> tuple[str, int]:
    """Have a node call another, and say by what method and how many circuits were spliced."""
    async with open_loopback(folder) as mesh:
        router = await mesh.router("router", **settings)
        async with (
            await mesh.node(transports=[transport]) as caller,
            await mesh.node(transports=[transport], data_path=callee) as called,
            called.serve("http", "app", app()),
            caller.http_client() as client,
        ):
            body = bytes(1_000_000)
            assert (await client.post(url_of(called, "echo"), content=body)).content == body
            found = router.relay.statistics()
            assert (found.opened, found.circuits) == (1, 1)
            assert found.relayed_bytes > 2 * len(body)
    return found.data_paths.method, found.data_paths.spliced


async def test_calls_over_tcp_are_spliced(tmp_path: Path) -> None:
    assert await spliced(tmp_path, TcpTransport()) == ("splice", 1)


async def test_calls_over_websocket_are_not(tmp_path: Path) -> None:
    assert await spliced(tmp_path, WebSocketTransport()) == ("splice", 0)


@pytest.mark.parametrize("who", ["router", "node"])
async def test_it_is_a_setting_of_routers_and_of_nodes(tmp_path: Path, who: str) -> None:
    if who == "router":
        assert await spliced(tmp_path, TcpTransport(), relay=OFF) == ("off", 0)
    else:
        assert await spliced(tmp_path, TcpTransport(), callee=False) == ("splice", 0)
