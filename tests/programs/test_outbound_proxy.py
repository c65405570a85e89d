"""Programs in a network whose only way out is a proxy."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from agentmesh.control_plane.config import Config
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.control_plane.server import open_control_plane
from agentmesh.errors import AddressError
from agentmesh.membership import Enrollment
from agentmesh.node import open_node
from agentmesh.one import OneConfig, open_one
from agentmesh.router import RouterConfig, open_router
from agentmesh.transports.proxy import DIRECT
from agentmesh.types import Address
from tests.agent.test_loopback import open_target
from tests.pool.worlds import say
from tests.programs.programs import Machine
from tests.transports.proxies import open_proxy

HERE = Address.parse("/ip4/127.0.0.1/tcp/0")
NAMED = "router.test:4001"


@asynccontextmanager
async def open_mesh(folder: Path) -> AsyncGenerator[tuple[str, str, str]]:
    """A control plane on this machine, and a router whose name is in no DNS; the URL, a token, where the router is."""
    settings = Config(
        bind_address="127.0.0.1:0", db_dsn=str(folder / "plane.db"), auto_approve_enrollment=True, policy=OPEN_POLICY
    )
    async with open_control_plane(settings) as plane:
        config = RouterConfig(
            enrollment=Enrollment(control_plane=plane.url, token=await plane.create_token("router")),
            state_dir=folder / "router",
            listen=(HERE,),
            external_addresses=(Address.parse("/dns4/router.test/tcp/4001"),),
        )
        async with open_router(config) as router:
            place = f"127.0.0.1:{router.host.addresses[0].value('tcp')}"
            yield plane.url, await plane.create_token("node", max_usages=2), place


async def test_a_node_gets_to_its_router_through_the_proxy_alone(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_mesh(tmp_path) as (url, token, place), open_proxy({NAMED: place}) as proxy:
        (tmp_path / "token").write_text(token)
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:s3cret@127.0.0.1:{proxy.port}")
        join = ("--control-plane", url, "--bootstrap-token-path", str(tmp_path / "token"))
        async with machine.running("node", *join, "--log-level", "debug") as node:
            await node.said(" attached ")
            assert "s3cret" not in node.text
        assert proxy.targets == [NAMED]
    await machine.none_left()


async def test_ports_lead_to_what_is_beside_an_agent_through_the_proxy(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_mesh(tmp_path) as (url, token, place), open_proxy({NAMED: place}) as proxy, open_target() as port:
        (tmp_path / "token").write_text(token)
        join = ("--control-plane", url, "--bootstrap-token-path", str(tmp_path / "token"))
        allow = ("--agent-id", "devbox", "--allow", f"127.0.0.1:{port}")
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:s3cret@127.0.0.1:{proxy.port}")
        ports = ("--listen", "127.0.0.1:0", "--data-dir", "forward")
        async with (
            machine.running("agent", "run", *join, *allow, "--server-url", f"tcp://{NAMED}") as agent,
            machine.running("forward", "devbox", f"tcp://127.0.0.1:{port}", *join, *ports) as forward,
        ):
            await agent.said(" connected ")
            await forward.said(" forwarding ")
            listening = int((await forward.said(r" listening .*address=127.0.0.1:(\d+)"))[1])
            async with await trio.open_tcp_stream("127.0.0.1", listening) as stream:
                assert await say(stream) == b"hello"
            assert "s3cret" not in agent.text + forward.text
        assert proxy.targets == [NAMED] * 2
    await machine.none_left()


async def test_one_needs_no_proxy_for_itself_and_a_node_may_be_told_to_take_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_proxy() as proxy:
        for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        async with open_one(OneConfig(data_dir=tmp_path / "mesh", bind_address="127.0.0.1:0")) as mesh:
            assert proxy.heads == []

            for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
                monkeypatch.setenv(name, "socks5://127.0.0.1:1")
            with pytest.raises(AddressError, match="HTTPS_PROXY"):
                async with open_node(mesh.control_plane.url, mesh.join_token):
                    pass
            async with open_node(mesh.control_plane.url, mesh.join_token, proxies=DIRECT) as node:
                assert node.routers == (mesh.router.peer,)
