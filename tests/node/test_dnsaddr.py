"""Routers that are known by names in DNS alone, over real sockets."""

from pathlib import Path

import pytest
import trio

from agentmesh.router import Router
from agentmesh.transports.resolver import SERVER_VARIABLE
from agentmesh.types import Address
from tests.node.loopback import Loopback, app, open_loopback, url_of
from tests.transports.dns_server import DnsServer, open_dns_server

TCP = (Address.parse("/ip4/127.0.0.1/tcp/0"),)


async def named(mesh: Loopback, dns: DnsServer, name: str) -> Router:
    """A router that tells the mesh its name, and DNS where it is."""
    announced = (Address.parse(f"/dnsaddr/{name}.test"),)
    router = await mesh.router(name, labels={"site": name}, listen=TCP, external_addresses=announced)
    dns.texts[f"_dnsaddr.{name}.test"] = [f"dnsaddr={address}" for address in router.host.addresses]
    return router


async def test_router_federation_and_relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two routers that are known by dnsaddr alone join each other, and a member of one calls a service that a member of
    the other serves: the directory says who, and the relay of the other router leads there.
    """
    async with open_dns_server() as dns:
        monkeypatch.setenv(SERVER_VARIABLE, f"{dns.host}:{dns.port}")
        async with open_loopback(tmp_path) as mesh:
            first, second = await named(mesh, dns, "a"), await named(mesh, dns, "b")
            with trio.fail_after(20):
                while not (first.federation.peers and second.federation.peers):  # noqa: ASYNC110 - seen from outside
                    await trio.sleep(0.05)
            async with (
                await mesh.node(router_selector={"site": "a"}) as caller,
                await mesh.node(router_selector={"site": "b"}) as provider,
                provider.serve("http", "app", app()),
                caller.http_client(timeout=20) as client,
            ):
                assert (caller.routers, provider.routers) == ((first.peer,), (second.peer,))
                with trio.fail_after(20):
                    while not await caller.find_providers("http", "app"):  # noqa: ASYNC110 - seen from outside
                        await trio.sleep(0.1)
                answer = await client.get(url_of(provider))
                assert (answer.status_code, answer.text) == (200, f"hello {caller.peer}")
                assert all("dnsaddr" in str(address) for address in provider.addresses)
            assert {"_dnsaddr.a.test", "_dnsaddr.b.test"} <= set(dns.asked)
