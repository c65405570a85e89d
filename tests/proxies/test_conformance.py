"""The suite that every transport passes, with a proxy in between."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from agentmesh.abc import Transport
from agentmesh.testing import TRANSPORT_CHECKS, check_transport
from agentmesh.testing.transport_address_checks import check_nobody_there
from agentmesh.testing.transport_lifetime_checks import check_failing_dial_cancelled
from agentmesh.testing.transport_setup import MIB
from agentmesh.transports.h2 import H2Transport
from agentmesh.transports.websocket import WebSocketTransport
from agentmesh.types import Address
from tests.proxies.proxies import HAPROXY_HTTP_FILE, run_haproxy, run_nginx
from tests.proxies.site import CERTIFICATE
from tests.servers.server import free_port
from tests.transports.certificates import Authority
from tests.transports.test_tcp import Names

KINDS: dict[str, tuple[type[WebSocketTransport] | type[H2Transport], str]] = {
    "ws": (WebSocketTransport, "127.0.0.1:5002"),
    "http": (H2Transport, "127.0.0.1:5003"),
}
# Three seconds each time: so long HAProxy tries a server that is not there, before it says so.
SLOW = {check_nobody_there, check_failing_dial_cancelled}


@pytest.mark.parametrize(("proxy", "kind"), [("nginx", "ws"), ("nginx", "http"), ("haproxy", "http")])
async def test_conforms(proxy: str, kind: str, tmp_path: Path) -> None:
    trio.socket.set_custom_hostname_resolver(Names("127.0.0.1"))
    transport, server = KINDS[kind]
    authority, port, behind = Authority(), free_port(), free_port()
    authority.server_context(tmp_path, "r1.example")
    changes = {CERTIFICATE: f"{tmp_path}/r1.example.pem", server: f"127.0.0.1:{behind}"}
    nginx = proxy == "nginx"

    @asynccontextmanager
    async def make() -> AsyncGenerator[tuple[Transport, Transport]]:
        yield transport(client_context=authority.client_context()), transport()

    async with run_nginx(tmp_path, port, changes) if nginx else run_haproxy(HAPROXY_HTTP_FILE, tmp_path, port, changes):
        await check_transport(
            make,
            Address.parse(f"/ip4/127.0.0.1/tcp/{behind}/{kind}"),
            dial_address=lambda _: Address.parse(f"/dns4/r1.example/tcp/{port}/tls/{kind}"),
            connections=16,
            transfer_bytes=MIB,
            checks=TRANSPORT_CHECKS if nginx else [check for check in TRANSPORT_CHECKS if check not in SLOW],
        )
