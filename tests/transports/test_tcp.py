import logging
import os
import resource
import socket
import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.abc import ByteStream, Listener, Transport
from agentmesh.errors import AddressError, DialError
from agentmesh.runtime.nursery import open_background
from agentmesh.testing import check_transport
from agentmesh.testing.transport_setup import echo
from agentmesh.transports.sockets import UNSENT_BYTES, Endpoint, split_endpoint
from agentmesh.transports.tcp import TcpTransport
from agentmesh.types import Address

LOOPBACK = Address.parse("/ip4/127.0.0.1/tcp/0")
LOOPBACK6 = Address.parse("/ip6/::1/tcp/0")


@asynccontextmanager
async def serving(address: Address = LOOPBACK) -> AsyncGenerator[Listener]:
    async with TcpTransport().listen(address) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, echo)
        yield listener


async def talks(address: Address) -> bool:
    async with TcpTransport().dial(address) as stream:
        await stream.send_all(b"hello")
        return await stream.receive_some() == b"hello"


def port_of(listener: Listener) -> str:
    return listener.addresses[0].value("tcp") or ""


class Names(trio.abc.HostnameResolver):
    """A name server: every name has these addresses."""

    def __init__(self, *hosts: str) -> None:
        self._hosts = hosts

    async def getaddrinfo(self, host: Any, port: Any, *args: Any, **options: Any) -> Any:
        await trio.lowlevel.checkpoint()
        if not self._hosts:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [
            (socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (ip, port))
            for ip in self._hosts
        ]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "no such address")


@pytest.mark.parametrize("address", [LOOPBACK, LOOPBACK6], ids=str)
async def test_conforms(address: Address) -> None:
    @asynccontextmanager
    async def make() -> AsyncGenerator[tuple[Transport, Transport]]:
        yield TcpTransport(), TcpTransport()

    await check_transport(make, address)


@pytest.mark.parametrize(
    ("kind", "hosts", "listening"),
    [
        ("dns", ["127.0.0.1"], LOOPBACK),
        ("dns", ["::1"], LOOPBACK6),
        ("dns", ["::1", "127.0.0.1"], LOOPBACK),
        ("dns4", ["::1", "127.0.0.1"], LOOPBACK),
        ("dns6", ["::1", "127.0.0.1"], LOOPBACK6),
        ("dns4", ["127.0.0.2", "127.0.0.1"], LOOPBACK),  # nobody listens at the first
    ],
)
async def test_names_are_looked_up(kind: str, hosts: Sequence[str], listening: Address) -> None:
    trio.socket.set_custom_hostname_resolver(Names(*hosts))
    async with serving(listening) as listener:
        assert await talks(Address.parse(f"/{kind}/router.example/tcp/{port_of(listener)}"))


@pytest.mark.parametrize(("kind", "hosts"), [("dns4", ["::1"]), ("dns6", ["127.0.0.1"]), ("dns", [])])
async def test_a_name_without_an_address_of_that_kind(kind: str, hosts: Sequence[str]) -> None:
    trio.socket.set_custom_hostname_resolver(Names(*hosts))
    with pytest.raises(DialError, match=f"/{kind}/router.example/tcp/4001"):
        async with TcpTransport().dial(Address.parse(f"/{kind}/router.example/tcp/4001")):
            pass


async def test_a_refusal_has_its_cause() -> None:
    async with serving() as listener:
        address = listener.addresses[0]
    with pytest.raises(DialError) as caught:
        async with TcpTransport().dial(address):
            pass
    assert isinstance(caught.value.__cause__, OSError)
    assert str(caught.value) == f"cannot connect to {address}: Connection refused"


@pytest.mark.parametrize(
    ("wildcard", "loopback"),
    [("/ip4/0.0.0.0/tcp/0", "/ip4/127.0.0.1/tcp/{}"), ("/ip6/::/tcp/0", "/ip6/::1/tcp/{}")],
)
async def test_a_wildcard_is_every_address_of_the_machine(wildcard: str, loopback: str) -> None:
    async with serving(Address.parse(wildcard)) as listener:
        addresses = list(listener.addresses)
        assert Address.parse(loopback.format(port_of(listener))) in addresses
        assert not {"0.0.0.0", "::"} & {address.parts[0][1] for address in addresses}
        assert len({address.value("tcp") for address in addresses}) == 1
        for address in addresses:
            assert await talks(address)


@pytest.mark.parametrize(
    "text",
    [
        "/memory/1",
        "/ip4/127.0.0.1/udp/4001",
        "/ip4/127.0.0.1/tcp/4001/ws",
        "/ip4/127.0.0.1/tcp/4001/p2p-circuit",
        "/dnsaddr/router.example",
    ],
)
def test_addresses_of_others(text: str) -> None:
    assert not TcpTransport().can_dial(Address.parse(text))
    assert not TcpTransport().can_listen(Address.parse(text))


async def test_port_zero_is_only_to_listen_on() -> None:
    assert TcpTransport().can_listen(LOOPBACK)
    assert not TcpTransport().can_dial(LOOPBACK)
    with pytest.raises(AddressError):
        async with TcpTransport().dial(LOOPBACK):
            pass


async def test_names_are_only_to_dial() -> None:
    name = Address.parse("/dns4/router.example/tcp/4001")
    assert TcpTransport().can_dial(name)
    assert not TcpTransport().can_listen(name)
    with pytest.raises(AddressError):
        async with TcpTransport().listen(name):
            pass


@pytest.mark.parametrize("suffix", ["tls", "tls/sni/router.example"])
async def test_where_tls_comes_first_is_only_to_dial(suffix: str) -> None:
    """A listener sees by the first byte what comes first."""
    async with serving() as listener:
        address = listener.addresses[0] / suffix
        assert await talks(address)
    assert not TcpTransport().can_listen(address)
    assert not TcpTransport().can_dial(address / "ws")


async def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(OSError, match="assign"):
        async with TcpTransport().listen(Address.parse("/ip4/203.0.113.1/tcp/0")):
            pass


def test_endpoints_are_written_as_in_urls() -> None:
    assert [Endpoint("ip4", "1.2.3.4", 5).authority, Endpoint("ip6", "::1", 5).authority] == ["1.2.3.4:5", "[::1]:5"]
    whole = Address.parse("/dns/a.example/tcp/1/ws/p2p/12D3KooWGRUtNTMsDx8rWzGpxCqCZYk2mMnHzAFdPzDcyiGLbVRo")
    assert split_endpoint(whole) == (Endpoint("dns", "a.example", 1), (("ws", None),))


async def test_connections_are_tuned_and_say_where_they_come_from() -> None:
    seen: list[tuple[ByteStream, Address | None]] = []

    async def note(stream: ByteStream, source: Address | None) -> None:
        seen.append((stream, source))
        await echo(stream, source)

    async with TcpTransport().listen(LOOPBACK) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, note)
        async with TcpTransport().dial(listener.addresses[0]) as dialed:
            await dialed.send_all(b"x")
            await dialed.receive_some()
            ((accepted, source),) = seen
            assert isinstance(dialed, trio.SocketStream)
            assert isinstance(accepted, trio.SocketStream)
            assert source == Address.parse(f"/ip4/127.0.0.1/tcp/{dialed.socket.getsockname()[1]}")
            for stream in (dialed, accepted):
                assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert stream.getsockopt(socket.IPPROTO_TCP, trio.socket.TCP_NOTSENT_LOWAT) == UNSENT_BYTES


async def test_callers_that_are_gone_do_not_end_the_listener() -> None:
    """They reset the connection before it was accepted."""
    async with TcpTransport().listen(LOOPBACK) as listener, open_background() as nursery:
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", int(port_of(listener)))) as caller:
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        nursery.start_soon(listener.serve, echo)
        assert await talks(listener.addresses[0])


@asynccontextmanager
async def no_descriptor_left() -> AsyncGenerator[None]:
    """A block in which the process cannot open another file."""
    free = os.dup(0)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_running_out_of_descriptors_is_a_pause(
    caplog: pytest.LogCaptureFixture, patient_clock: trio.testing.MockClock
) -> None:
    async with TcpTransport().listen(LOOPBACK) as listener, open_background() as nursery:
        with socket.create_connection(("127.0.0.1", int(port_of(listener)))) as caller:
            caller.sendall(b"patience")
            async with no_descriptor_left():
                with caplog.at_level(logging.WARNING):
                    nursery.start_soon(listener.serve, echo)
                    await wait_all_tasks_blocked()
            assert caplog.messages == ["accepting pauses"]
            stream = trio.SocketStream(trio.socket.from_stdlib_socket(socket.fromfd(caller.fileno(), 2, 1)))
            async with stream:
                assert await stream.receive_some() == b"patience"
