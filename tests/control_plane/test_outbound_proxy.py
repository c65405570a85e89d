"""A control plane that is reached through an outbound proxy, as the environment says it."""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from agentmesh.control_plane.backoff import Backoff
from agentmesh.control_plane.client import ControlPlaneClient, open_client
from agentmesh.control_plane.errors import ControlPlaneUnavailableError
from agentmesh.errors import AddressError
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment, open_membership
from agentmesh.transports.proxy import DIRECT, ProxyRules
from tests.transports.certificates import Authority
from tests.transports.proxies import open_deed, open_proxy, read_head, through
from tests.transports.test_tcp import Names

EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"  # no routers: an /info like any other


async def answer(stream: trio.abc.Stream) -> None:
    await read_head(stream)
    await stream.send_all(EMPTY)


@asynccontextmanager
async def calling(url: str, proxies: ProxyRules | None = None) -> AsyncGenerator[ControlPlaneClient]:
    async with open_client(url, Identity.generate(), backoff=Backoff(budget=0.0), proxies=proxies) as client:
        yield client


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """An authority that this process trusts."""
    authority = Authority()
    (der,) = authority.client_context().get_ca_certs(binary_form=True)
    path = tmp_path / "authority.pem"
    path.write_text(ssl.DER_cert_to_PEM_cert(der))
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    return authority


async def test_https_goes_through_a_tunnel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: Authority) -> None:
    trio.socket.set_custom_hostname_resolver(Names())
    context = trusted.server_context(tmp_path, "plane.example")
    async with open_deed(answer, context) as port, open_proxy({"plane.example": "127.0.0.1"}) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:s3cret@127.0.0.1:{proxy.port}")
        async with calling(f"https://plane.example:{port}") as client:
            assert (await client.info()).routers == ()
        assert proxy.targets == [f"plane.example:{port}"]
        assert b"proxy-authorization: basic dxnlcjpzm2nyzxq=\r\n" in proxy.heads[0].lower()


async def test_http_is_asked_of_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[bytes] = []

    async def forward(stream: trio.abc.Stream) -> None:
        heads.append(await read_head(stream))
        await stream.send_all(EMPTY)

    async with open_deed(forward) as port:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
        async with calling("http://plane.example") as client:
            assert (await client.info()).routers == ()
    assert heads[0].startswith(b"GET http://plane.example/info HTTP/1.1\r\n")


@pytest.mark.parametrize("no_proxy", [".example", "plane.example:{port}", "10.0.0.0/8,127.0.0.0/8"])
async def test_no_proxy_is_read_as_for_the_transports(monkeypatch: pytest.MonkeyPatch, no_proxy: str) -> None:
    trio.socket.set_custom_hostname_resolver(Names("127.0.0.1"))
    async with open_deed(answer) as port, open_proxy() as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("NO_PROXY", no_proxy.format(port=port))
        host = "127.0.0.1" if "/" in no_proxy else "plane.example"
        async with calling(f"http://{host}:{port}") as client:
            assert (await client.info()).routers == ()
        assert proxy.heads == []


async def test_a_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(stream: trio.abc.Stream) -> None:
        await read_head(stream)
        await stream.send_all(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")

    async with open_deed(refuse) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:s3cret@127.0.0.1:{port}")
        async with calling("https://plane.example") as client:
            with pytest.raises(ControlPlaneUnavailableError, match="407 Proxy Authentication Required") as caught:
                await client.info()
    assert "s3cret" not in str(caught.value)


async def test_what_is_said_counts_more_than_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    trio.socket.set_custom_hostname_resolver(Names("127.0.0.1"))
    monkeypatch.setenv("ALL_PROXY", "socks5://h:1")
    async with open_deed(answer) as port:
        for url, proxies in ((f"http://plane.example:{port}", DIRECT), ("http://plane.example", through(port))):
            async with calling(url, proxies) as client:
                assert (await client.info()).routers == ()


async def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "socks5://h:1")
    with pytest.raises(AddressError, match="^https_proxy: a proxy is reached by http or https, not by socks5$"):
        async with open_membership(Identity.generate(), Enrollment(control_plane="https://plane.example")):
            pass
