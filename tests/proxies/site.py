"""Two routers with nginx and HAProxy before them, all on loopback, and the ways in."""

import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
import trio

from agentmesh.identity import Identity
from agentmesh.protocols import identify, ping
from agentmesh.runtime.config import HostConfig, SessionConfig
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.registry import Protocol
from agentmesh.transports.h2 import H2Transport
from agentmesh.transports.tcp import TcpTransport
from agentmesh.transports.websocket import WebSocketTransport
from agentmesh.types import Address
from tests.interop.hosts import COUNT, ECHO, serve_count, serve_echo
from tests.proxies.proxies import HAPROXY_HTTP_FILE, HAPROXY_TCP_FILE, Changes, run_haproxy, run_nginx
from tests.servers.server import free_port
from tests.transports.certificates import Authority
from tests.transports.test_tcp import Names

NGINX, HAPROXY_HTTP, HAPROXY_TCP = "nginx", "haproxy-http", "haproxy-tcp"
LISTEN = [Address.parse(f"/ip4/127.0.0.1/tcp/0{suffix}") for suffix in ("", "/ws", "/http", "/tls/ws")]
NGINX_TIMEOUTS = (
    *("proxy_read_timeout", "proxy_send_timeout", "grpc_read_timeout"),
    *("grpc_send_timeout", "client_body_timeout", "send_timeout"),
)
HAPROXY_FILES = {HAPROXY_HTTP: HAPROXY_HTTP_FILE, HAPROXY_TCP: HAPROXY_TCP_FILE}
CERTIFICATE = "/etc/ssl/private/r1.example.pem"
HAPROXY_TIMEOUTS = ("timeout client 50s", "timeout server 50s")


@attrs.frozen
class Way:
    """A way in: an address of the table in docs/proxies.md."""

    proxy: str
    name: str
    suffix: str

    def __str__(self) -> str:
        return f"{self.proxy}-{self.name}{self.suffix.replace('/', '-')}"


WAYS = [
    Way(NGINX, "r1.example", "/tls/ws"),
    Way(NGINX, "r1.example", "/tls/http"),
    Way(HAPROXY_HTTP, "r1.example", "/tls/ws"),
    Way(HAPROXY_HTTP, "r1.example", "/tls/http"),
    Way(HAPROXY_TCP, "r1.example", "/tls"),
    Way(HAPROXY_TCP, "web.r1.example", "/tls/ws"),
    Way(HAPROXY_TCP, "lb.example", ""),
]


class Site:
    """What stands there.

    Attributes:
        router: the first of the two, which every one of WAYS leads to.
        other: the second.
    """

    def __init__(self, folder: Path, session: SessionConfig) -> None:
        self.router: Host
        self.other: Host
        self._folder = folder
        self._config = HostConfig(session=session)
        self._authority = Authority()
        self._certificate = self._authority.server_context(folder, "r1.example", "web.r1.example")
        self._ports = {proxy: free_port() for proxy in (NGINX, HAPROXY_HTTP, HAPROXY_TCP)}

    def address(self, way: Way) -> Address:
        return Address.parse(f"/dns4/{way.name}/tcp/{self._ports[way.proxy]}{way.suffix}")

    @asynccontextmanager
    async def open_router(self) -> AsyncGenerator[Host]:
        transports = [TcpTransport(), WebSocketTransport(server_context=self._certificate), H2Transport()]
        protocols = [
            Protocol(ECHO, serve_echo),
            Protocol(COUNT, serve_count),
            ping.protocol(),
            identify.protocol(),
        ]
        async with open_host(
            identity=Identity.generate(),
            transports=transports,
            protocols=protocols,
            listen=LISTEN,
            config=self._config,
        ) as host:
            yield host

    @asynccontextmanager
    async def open_member(self) -> AsyncGenerator[Host]:
        """Somebody who trusts the certificates of the site."""
        trusted = self._authority.client_context
        transports = [
            TcpTransport(),
            WebSocketTransport(client_context=trusted()),
            H2Transport(client_context=trusted()),
        ]
        protocols = [Protocol(ECHO, serve_echo), Protocol(COUNT, serve_count)]
        async with open_host(
            identity=Identity.generate(), transports=transports, protocols=protocols, config=self._config
        ) as host:
            yield host

    @asynccontextmanager
    async def proxies(self, timeout: str = "") -> AsyncGenerator[dict[str, trio.Process]]:
        """Run them for the length of the block, always on the same ports.

        Args:
            timeout: for an idle connection, in their words; what the page says when it is empty.
        """
        more = "".join(f"{setting} {timeout};" for setting in NGINX_TIMEOUTS) if timeout else ""
        shorter = {old: old.replace("50s", timeout) for old in HAPROXY_TIMEOUTS} if timeout else {}
        ports, running = self._ports, dict[str, trio.Process]()
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            running[NGINX] = await enter(run_nginx(self._folder, ports[NGINX], self._changes(NGINX), more))
            for proxy, file in HAPROXY_FILES.items():
                changes = {**self._changes(proxy), **shorter}
                running[proxy] = await enter(run_haproxy(file, self._folder, ports[proxy], changes))
            yield running

    @asynccontextmanager
    async def reloaded(self, running: Mapping[str, trio.Process]) -> AsyncGenerator[None]:
        """Have them read their files again, as a service manager does; the old processes keep what is open."""
        running[NGINX].send_signal(signal.SIGHUP)
        async with AsyncExitStack() as stack:
            for proxy, file in HAPROXY_FILES.items():
                instead_of = ("-sf", str(running[proxy].pid))
                again = run_haproxy(file, self._folder, self._ports[proxy], self._changes(proxy), *instead_of)
                await stack.enter_async_context(again)
            yield

    def _changes(self, proxy: str) -> Changes:
        """What the page's file says of servers and certificates, and what it is here."""
        tcp, websocket, http2, wss = map(_server, self.router.addresses)
        if proxy == HAPROXY_TCP:
            other = _server(self.other.addresses[0])
            return {"127.0.0.1:5001": tcp, "127.0.0.1:6001": other, "127.0.0.1:5004": wss}
        certificate = f"{self._folder}/r1.example.pem"
        return {"127.0.0.1:5002": websocket, "127.0.0.1:5003": http2, CERTIFICATE: certificate}


def _server(address: Address) -> str:
    return f"127.0.0.1:{address.value('tcp')}"


@asynccontextmanager
async def open_site(folder: Path, session: SessionConfig | None = None) -> AsyncGenerator[Site]:
    """Routers, whose names lead to loopback, and no proxy yet.

    Args:
        folder: for the proxies' files.
        session: settings of routers and members.
    """
    trio.socket.set_custom_hostname_resolver(Names("127.0.0.1"))
    site = Site(folder, session or SessionConfig())
    async with site.open_router() as site.router, site.open_router() as site.other:
        yield site
