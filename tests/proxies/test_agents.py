"""An agent behind nginx and HAProxy, as docs/agent.md and docs/proxies.md set them up: two routers at one URL."""

import hashlib
import re
import signal
import ssl
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from agentmesh.agent import AgentProcess, AgentProcessConfig, open_agent, rule_of
from agentmesh.pool.agent.access import AccessPolicy
from agentmesh.pool.agent.config import AgentConfig, ConnectionsConfig
from agentmesh.pool.router.leased import PooledStream
from agentmesh.protocols.pool import Open
from agentmesh.router import Router
from agentmesh.runtime.nursery import open_background
from agentmesh.types import Address
from tests.agent.fleet import AGENT, TWO, ids_at, spread, wait_until
from tests.node.loopback import LISTEN, Loopback, open_loopback
from tests.proxies.proxies import (
    HAPROXY_HTTP_FILE,
    HAPROXY_TCP_FILE,
    NGINX_AGENTS_FILE,
    run_haproxy,
    run_nginx,
)
from tests.servers.server import free_port
from tests.transports.certificates import Authority
from tests.transports.test_tcp import Names

MIB = 1024 * 1024
FORTH, BACK = (hashlib.shake_128(way).digest(3 * MIB) for way in (b"forth", b"back"))
ONE = ConnectionsConfig()
NAMES = ("tunnel.example.com", "r1.example", "web.r1.example")
PATIENCE = 60.0  # seconds of real time; far more than it takes
PRIVATE = "/etc/ssl/private/"


async def answer_at_the_end(stream: trio.SocketStream) -> None:
    """The hash of all that is sent, when all has been sent, and then BACK."""
    with suppress(trio.BrokenResourceError):
        received = hashlib.sha256()
        while data := await stream.receive_some(MIB):
            received.update(data)
        await stream.send_all(received.digest() + BACK)
        await stream.send_eof()


@attrs.frozen
class World:
    """Two routers, and a target.

    Attributes:
        folder: has the certificates, and the authority's.
        target: its port.
        port: where the proxy is to listen.
    """

    folder: Path
    mesh: Loopback
    routers: list[Router]
    target: int
    port: int = attrs.field(factory=free_port)

    @asynccontextmanager
    async def agent(self, url: str, connections: ConnectionsConfig = ONE) -> AsyncGenerator[AgentProcess]:
        config = AgentProcessConfig(
            enrollment=await self.mesh.enrollment(),
            agent=AgentConfig(id=AGENT, server_url=url, connections=connections),
            state_dir=self.folder / hashlib.sha256(url.encode()).hexdigest(),
            access=AccessPolicy((rule_of("tcp://127.0.0.1"),)),
        )
        with trio.CancelScope() as scope:  # leaving in good order takes a second
            async with open_agent(config) as agent:
                yield agent
                scope.cancel()

    def proxy(self, name: str) -> AbstractAsyncContextManager[trio.Process]:
        """One that ends TLS, before both routers."""
        one, other = (f"127.0.0.1:{port_of(router, 'ws')}" for router in self.routers)
        certificates = {PRIVATE: f"{self.folder}/"}
        if name == "nginx":
            changes = {"10.0.0.1:5002": one, "10.0.0.2:5002": other, **certificates}
            return run_nginx(self.folder, self.port, changes, file=NGINX_AGENTS_FILE)
        changes = {"server r1 127.0.0.1:5002": f"server r1 {one}\n    server r2 {other}", **certificates}
        return run_haproxy(HAPROXY_HTTP_FILE, self.folder, self.port, changes)

    async def begin(self, router: Router) -> PooledStream:
        """A stream that much has been sent on."""
        stream = await router.agents.service.opener.open(AGENT, Open("", "tcp", "127.0.0.1", self.target))
        assert isinstance(stream, PooledStream), stream
        await stream.send_all(FORTH[:MIB])
        return stream


def port_of(router: Router, *names: str) -> int:
    """Where it listens for what stands so behind `tcp`."""
    return int(next(one.value("tcp") or "" for one in router.addresses if one.names[2:-1] == names))


async def finish(stream: PooledStream) -> None:
    """Send more, and the end; then receive as much."""
    async with stream:
        await stream.send_all(FORTH[MIB:])
        await stream.send_eof()
        received = bytearray()
        while data := await stream.receive_some():
            received += data
    assert received == hashlib.sha256(FORTH).digest() + BACK


@asynccontextmanager
async def open_world(folder: Path, **settings: object) -> AsyncGenerator[World]:
    """`settings` are the routers'."""
    trio.socket.set_custom_hostname_resolver(Names("127.0.0.1"))
    async with open_loopback(folder / "mesh") as mesh, open_background() as nursery:
        routers = [await mesh.router(name, **settings) for name in ("r1", "r2")]
        (listener,) = await nursery.start(partial(trio.serve_tcp, answer_at_the_end, 0, host="127.0.0.1"))
        with trio.fail_after(PATIENCE):
            yield World(folder, mesh, routers, listener.socket.getsockname()[1])


@pytest.fixture
def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a certificate for each of NAMES; who signed them is trusted, as docs/agent.md says."""
    authority = Authority()
    for name in NAMES:
        authority.server_context(tmp_path, name)
    (der,) = authority.client_context().get_ca_certs(binary_form=True)
    (tmp_path / "authority.pem").write_text(ssl.DER_cert_to_PEM_cert(der))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    return tmp_path


@attrs.frozen
class Running:
    """A proxy that can be stopped."""

    process: trio.Process
    scope: trio.CancelScope


async def run_proxy(world: World, name: str, task_status: trio.TaskStatus[Running]) -> None:
    with trio.CancelScope() as scope:
        async with world.proxy(name) as process:
            task_status.started(Running(process, scope))
            await trio.sleep_forever()


@pytest.mark.parametrize(("proxy", "name"), [("nginx", "tunnel.example.com"), ("haproxy", "r1.example")])
async def test_an_agent_comes_to_both_routers_and_is_back_when_the_proxy_is(
    certified: Path, proxy: str, name: str
) -> None:
    async with open_world(certified) as world, open_background() as nursery:
        running: Running = await nursery.start(run_proxy, world, proxy)
        async with (
            world.agent(f"tcp://127.0.0.1:{port_of(world.routers[0])}"),
            world.agent(f"wss://{name}:{world.port}/ws/agent/v1", TWO) as agent,
        ):
            await wait_until(lambda: spread(*world.routers) == [2, 1] and len(agent.connections) == 2)
            through = {link.connection_id for link in agent.connections}
            direct = ids_at(*world.routers) - through
            streams = [await world.begin(router) for router in world.routers]
            while not {stream.key.connection_id for stream in streams} >= direct | through:
                streams.append(await world.begin(world.routers[0]))
            if proxy == "nginx":
                await reload(running.process)
            await finish(await world.begin(world.routers[1]))
            assert ids_at(*world.routers) == direct | through
            running.scope.cancel()
            await wait_until(lambda: ids_at(*world.routers) == direct)
            await those_are_lost(streams, through)
            await nursery.start(run_proxy, world, proxy)
            await wait_until(lambda: spread(*world.routers) == [2, 1])
            await finish(await world.begin(world.routers[1]))


async def those_are_lost(streams: list[PooledStream], connections: set[str]) -> None:
    """Those on these connections, and no others."""
    for stream in streams:
        if stream.key.connection_id not in connections:
            await finish(stream)
            continue
        with pytest.raises(trio.BrokenResourceError):
            await finish(stream)


async def reload(nginx: trio.Process) -> None:
    """Have it read its file again, and wait for the process that takes over; the old one keeps what it has."""
    nginx.send_signal(signal.SIGHUP)
    await wait_until(lambda: len(children_of(nginx.pid)) > 1)


def children_of(pid: int) -> list[str]:
    found: list[str] = []
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            found += re.findall(rf"^PPid:\t{pid}$", status.read_text(), re.MULTILINE)
    return found


async def test_an_agent_by_the_name_that_its_tls_begins_with(certified: Path) -> None:
    """Nothing but routers ends TLS here; and what names nothing goes to the first of them."""
    listen = (*LISTEN, Address.parse("/ip4/127.0.0.1/tcp/0/tls/ws"))
    async with open_world(certified, listen=listen, tls_certificate=certified / "web.r1.example.pem") as world:
        first, second = world.routers
        ports = {5001: port_of(first), 6001: port_of(second), 5004: port_of(first, "tls", "ws")}
        changes = {f"127.0.0.1:{there}": f"127.0.0.1:{here}" for there, here in ports.items()}
        async with run_haproxy(HAPROXY_TCP_FILE, certified, world.port, changes):
            for url in (f"wss://web.r1.example:{world.port}", f"tcp://lb.example:{world.port}"):
                async with world.agent(url):
                    await wait_until(lambda: spread(*world.routers) == [1, 0])
                    await finish(await world.begin(world.routers[0]))
                await wait_until(lambda: not ids_at(*world.routers))


async def test_what_keeps_it_out_is_one_line_that_says_why(
    certified: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "agentmesh.pool.agent")
    async with open_world(certified) as world, world.proxy("nginx"):
        assert "refused with HTTP status 404" in await failure(world, NAMES[0], "/nothing", caplog)
        refused = "{}: no TLS to it: its certificate is not accepted: "
        assert f"{refused}Hostname mismatch" in await failure(world, "other.example", "", caplog)
        monkeypatch.delenv("SSL_CERT_FILE")
        assert f"{refused}unable to get local issuer" in await failure(world, NAMES[0], "", caplog)


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why connections ended."""
    return [str(one.__dict__["reason"]) for one in caplog.records if one.getMessage() == "connection ended"]


async def failure(world: World, name: str, path: str, caplog: pytest.LogCaptureFixture) -> str:
    """What an agent says that does not come in, with {} where it names the address."""
    caplog.clear()
    async with world.agent(f"wss://{name}:{world.port}{path}"):
        await wait_until(lambda: bool(reasons(caplog)))
    line = reasons(caplog)[0]
    assert "\n" not in line
    return line.replace(f"/dns/{name}/tcp/{world.port}/wss", "{}")
