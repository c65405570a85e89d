"""Dialling through tinyproxy, which nobody here wrote."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest

from agentmesh.abc import Transport
from agentmesh.errors import ProxyError
from agentmesh.testing import check_transport
from agentmesh.transports.proxy import ProxyRules
from agentmesh.transports.tcp import TcpTransport
from tests.servers.server import free_port, run_server
from tests.transports.proxies import through
from tests.transports.test_proxy_conformance import TCP, TRANSPORTS
from tests.transports.test_tcp import serving

CONFIGURATION = """
Listen 127.0.0.1
Port {port}
LogFile "{folder}/log"
LogLevel Connect
BasicAuth user s3cret
{more}
"""


@attrs.frozen
class Tinyproxy:
    """One that runs, and lets in who knows the password."""

    port: int
    log: Path

    @property
    def rules(self) -> ProxyRules:
        return through(self.port, "user:s3cret@")

    @property
    def asked(self) -> int:
        """How many times it was asked to connect."""
        return len(re.findall(r"Request .*: CONNECT ", self.log.read_text()))


@asynccontextmanager
async def run_tinyproxy(folder: Path, more: str = "") -> AsyncGenerator[Tinyproxy]:
    port, configuration = free_port(), folder / "tinyproxy.conf"
    configuration.write_text(CONFIGURATION.format(port=port, folder=folder, more=more))
    async with run_server(["tinyproxy", "-d", "-c", configuration], port):
        yield Tinyproxy(port, folder / "log")


@pytest.mark.parametrize("name", TRANSPORTS)
async def test_conforms(tmp_path: Path, name: str) -> None:
    address, dialing, listening = TRANSPORTS[name]
    async with run_tinyproxy(tmp_path) as proxy:

        @asynccontextmanager
        async def make() -> AsyncGenerator[tuple[Transport, Transport]]:
            yield dialing(proxy.rules), listening

        await check_transport(make, address, connections=16)
        assert proxy.asked > 50


async def test_its_refusals_are_told(tmp_path: Path) -> None:
    async with serving() as listener:
        gone = listener.addresses[0]
    async with run_tinyproxy(tmp_path, "ConnectPort 443") as proxy:
        allowed = TCP.parse("/ip4/127.0.0.1/tcp/443")
        for rules, address, status, retryable in (
            (through(proxy.port), allowed, 407, False),
            (through(proxy.port, "user:wrong@"), allowed, 401, False),
            (proxy.rules, gone, 403, False),  # another port
            (proxy.rules, allowed, 500, True),  # nobody there
        ):
            with pytest.raises(ProxyError) as caught:
                async with TcpTransport(proxies=rules).dial(address):
                    pass
            assert (caught.value.status, caught.value.retryable) == (status, retryable)
