"""An agent in a network whose only way out is tinyproxy, as the environment says."""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from agentmesh.agent import AgentProcessConfig, open_agent, rule_of
from agentmesh.pool.agent.access import AccessPolicy
from agentmesh.pool.agent.config import AgentConfig
from agentmesh.router import Router
from agentmesh.types import Address
from tests.agent.fleet import AGENT, ids_at, wait_until
from tests.agent.test_loopback import open_target, reach
from tests.node.loopback import Loopback, open_loopback
from tests.transports.certificates import Authority
from tests.transports.proxies import ConnectProxy, open_proxy
from tests.transports.test_proxy_tinyproxy import Tinyproxy, run_tinyproxy
from tests.transports.test_tcp import Names

NAMED = "router.test:4001"
WEB = "router.test:443"


@attrs.frozen
class World:
    """A mesh whose router announces a name that is in no DNS, and tinyproxy, behind which there is one that knows it.

    Attributes:
        port: of a target.
        behind: was asked for what was dialled through both.
    """

    mesh: Loopback
    router: Router
    port: int
    behind: ConnectProxy
    tinyproxy: Tinyproxy

    async def config(self, server_url: str) -> AgentProcessConfig:
        return AgentProcessConfig(
            enrollment=await self.mesh.enrollment(),
            agent=AgentConfig(id=AGENT, server_url=server_url),
            state_dir=self.mesh.folder / "agent",
            access=AccessPolicy((rule_of("tcp://127.0.0.1"),)),
        )

    async def visit(self, server_url: str) -> None:
        """Have an agent come and be used, and cut it off."""
        with trio.CancelScope() as scope:  # leaving in good order takes a second
            async with open_agent(await self.config(server_url)):
                await wait_until(lambda: bool(ids_at(self.router)), within=30)
                await reach(self.router, self.port)
                scope.cancel()
        await wait_until(lambda: not ids_at(self.router), within=30)


@asynccontextmanager
async def open_world(folder: Path) -> AsyncGenerator[World]:
    authority = Authority()
    authority.server_context(folder, "router.test")
    (der,) = authority.client_context().get_ca_certs(binary_form=True)
    (folder / "authority.pem").write_text(ssl.DER_cert_to_PEM_cert(der))
    async with open_loopback(folder / "mesh") as mesh, open_target() as port, open_proxy() as behind:
        router = await mesh.router(
            "r1",
            listen=tuple(Address.parse(f"/ip4/127.0.0.1/tcp/0{over}") for over in ("", "/tls/ws")),
            external_addresses=(Address.parse("/dns4/router.test/tcp/4001"),),
            tls_certificate=folder / "router.test.pem",
        )
        tcp, web = (f"127.0.0.1:{one.value('tcp')}" for one in router.host.addresses)
        behind.names.update({NAMED: tcp, WEB: web})
        async with run_tinyproxy(folder, f"Upstream http 127.0.0.1:{behind.port}") as tinyproxy:
            yield World(mesh, router, port, behind, tinyproxy)


async def test_it_dials_servers_and_listed_routers_through_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trio.socket.set_custom_hostname_resolver(Names())  # nobody here knows the router's name
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    async with open_world(tmp_path) as world:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:s3cret@127.0.0.1:{world.tinyproxy.port}")
        for url in ("wss://router.test/ws/agent/v1", "tcp://router.test:4001", ""):
            await world.visit(url)
        assert world.behind.targets == [WEB, NAMED, NAMED]
        assert world.tinyproxy.asked == 3


async def test_what_no_proxy_lists_it_dials_itself_and_a_refusal_is_a_line_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trio.socket.set_custom_hostname_resolver(Names("127.0.0.1"))
    caplog.set_level("INFO", "agentmesh.pool.agent")
    async with open_world(tmp_path) as world:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:wr0ng@127.0.0.1:{world.tinyproxy.port}")
        monkeypatch.setenv("NO_PROXY", "router.test")
        await world.visit(f"tcp://router.test:{world.router.host.addresses[0].value('tcp')}")
        assert "Request" not in world.tinyproxy.log.read_text()
        monkeypatch.delenv("NO_PROXY")
        caplog.clear()
        async with open_agent(await world.config("tcp://router.test:4001")):
            await wait_until(lambda: "connection ended" in caplog.messages, within=30)
        record = next(one for one in caplog.records if one.getMessage() == "connection ended")
        reason = str(record.__dict__["reason"])
        assert f"the proxy http://127.0.0.1:{world.tinyproxy.port}" in reason
        assert "401" in reason
        assert "wr0ng" not in reason
