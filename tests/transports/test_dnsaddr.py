"""Addresses that DNS says, of a server on the loopback interface."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from agentmesh.abc import Listener
from agentmesh.errors import AddressError, DialError
from agentmesh.testing import MemoryNetwork
from agentmesh.transports import resolver
from agentmesh.transports.dnsaddr import MAX_ADDRESSES, DnsaddrTransport
from agentmesh.transports.resolver import ATTEMPT_TIMEOUT, ATTEMPTS, servers_from_environment, system_servers
from agentmesh.transports.tcp import TcpTransport
from agentmesh.types import Address, PeerId
from tests.transports.dns_server import DnsServer, open_dns_server
from tests.transports.test_tcp import serving

PEER, OTHER = (PeerId.from_ed25519(bytes([number]) * 32) for number in (1, 2))
HOST = Address.parse("/dnsaddr/router.example")
NAME = "_dnsaddr.router.example"


@asynccontextmanager
async def open_all() -> AsyncGenerator[tuple[DnsServer, Listener, DnsaddrTransport]]:
    async with open_dns_server() as server, serving() as listener:
        yield server, listener, DnsaddrTransport([TcpTransport()], lambda: [server.server])


async def talks(transport: DnsaddrTransport, address: Address) -> bool:
    async with transport.dial(address) as stream:
        await stream.send_all(b"hello")
        return await stream.receive_some() == b"hello"


@pytest.mark.parametrize("peer", [None, PEER])
async def test_what_the_records_name_is_dialled(peer: PeerId | None) -> None:
    async with open_all() as (server, listener, transport):
        (there,) = listener.addresses
        server.texts[NAME] = ["something else", "dnsaddr=nothing", f"dnsaddr={there.with_peer(PEER)}"]
        assert await talks(transport, HOST if peer is None else HOST.with_peer(peer))
        assert server.asked == [NAME]


async def test_the_first_that_answers_is_taken() -> None:
    async with open_all() as (server, listener, transport):
        server.texts[NAME] = ["dnsaddr=/ip4/127.0.0.1/tcp/1", f"dnsaddr={listener.addresses[0]}"]
        assert await talks(transport, HOST)
        server.texts[NAME] = ["dnsaddr=/ip4/127.0.0.1/tcp/1", "dnsaddr=/ip4/127.0.0.1/tcp/2"]
        with pytest.raises(DialError, match="tcp/1.*tcp/2"):
            await talks(transport, HOST)


async def test_what_is_of_others_or_cannot_be_dialled_is_passed_over() -> None:
    async with open_all() as (server, listener, transport):
        (there,) = listener.addresses
        server.texts[NAME] = [
            f"dnsaddr={there.with_peer(OTHER)}",
            "dnsaddr=/ip4/1.2.3.4/udp/5001/quic-v1",
            "dnsaddr=/dns4/router.example/tcp/443/tls",
        ]
        assert await transport.resolve(HOST.with_peer(PEER)) == []
        with pytest.raises(DialError, match="names no address"):
            await talks(transport, HOST.with_peer(PEER))
        assert await transport.resolve(HOST) == [there.with_peer(OTHER)]


async def test_records_may_name_further_records_up_to_a_depth() -> None:
    async with open_all() as (server, listener, transport):
        server.texts[NAME] = ["dnsaddr=/dnsaddr/next.example"]
        server.texts["_dnsaddr.next.example"] = [f"dnsaddr={listener.addresses[0]}"]
        assert await talks(transport, HOST)
        server.texts[NAME] = [f"dnsaddr={HOST}"]
        server.asked.clear()
        assert await transport.resolve(HOST) == []
        assert len(server.asked) == 4


async def test_no_more_is_dialled_than_is_bearable() -> None:
    async with open_all() as (server, _, transport):
        server.texts[NAME] = [f"dnsaddr=/ip4/127.0.0.1/tcp/{port}" for port in range(1, 40)]
        assert len(await transport.resolve(HOST)) == MAX_ADDRESSES


async def test_long_answers_are_asked_for_over_tcp() -> None:
    async with open_all() as (server, listener, transport):
        server.truncates = True
        server.texts[NAME] = ["dnsaddr=" + "x" * 600, f"dnsaddr={listener.addresses[0]}"]
        assert await talks(transport, HOST)


async def test_what_was_not_asked_for_is_no_answer() -> None:
    async with open_all() as (server, listener, transport):
        server.forges = True
        server.texts[NAME] = [f"dnsaddr={listener.addresses[0]}"]
        assert await talks(transport, HOST)


async def test_a_server_that_errs_is_said() -> None:
    async with open_all() as (server, _, transport):
        server.code = 2
        with pytest.raises(DialError, match="error 2"):
            await talks(transport, HOST)
        assert len(server.asked) == ATTEMPTS
        for host in ("x" * 64, "a..b"):
            with pytest.raises((DialError, AddressError)):
                await transport.resolve(Address.parse(f"/dnsaddr/{host}"))


async def test_a_server_that_is_silent_is_asked_again(autojump_clock: MockClock) -> None:
    with trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM) as silent:
        await silent.bind(("127.0.0.1", 0))
        transport = DnsaddrTransport([TcpTransport()], lambda: [silent.getsockname()])
        began = trio.current_time()
        with pytest.raises(DialError, match="no answer"):
            await transport.resolve(HOST)
        assert trio.current_time() - began == pytest.approx(ATTEMPTS * ATTEMPT_TIMEOUT)
        assert [await silent.recv(100), await silent.recv(100)]


async def test_without_a_server_nothing_is_found() -> None:
    with pytest.raises(DialError, match="no server"):
        await DnsaddrTransport([], lambda: []).resolve(HOST)


def test_it_is_only_to_be_dialled() -> None:
    transport = DnsaddrTransport([MemoryNetwork().transport("a")], lambda: [])
    assert transport.can_dial(HOST)
    assert transport.can_dial(HOST.with_peer(PEER))
    assert not any(map(transport.can_dial, (Address.parse("/memory/1"), HOST / "tcp/1")))
    assert not transport.can_listen(HOST)
    with pytest.raises(AddressError):
        transport.listen(HOST)


def test_the_servers_are_the_systems_or_a_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    monkeypatch.setattr(resolver, "RESOLV_CONF", file)
    assert system_servers() == []
    file.write_text("# nameserver 9.9.9.9\nnameserver 10.0.0.1\nnameserver fd00::1\noptions edns0\n")
    monkeypatch.delenv(resolver.SERVER_VARIABLE, raising=False)
    assert list(servers_from_environment()()) == [("10.0.0.1", 53), ("fd00::1", 53)]
    monkeypatch.setenv(resolver.SERVER_VARIABLE, "127.0.0.1:5353")
    assert list(servers_from_environment()()) == [("127.0.0.1", 5353)]
    monkeypatch.setenv(resolver.SERVER_VARIABLE, "[::1]:5353")
    assert list(servers_from_environment()()) == [("::1", 5353)]
    for malformed in ("127.0.0.1", ":53", "host:port"):
        monkeypatch.setenv(resolver.SERVER_VARIABLE, malformed)
        with pytest.raises(AddressError, match="host:port"):
            DnsaddrTransport([])
