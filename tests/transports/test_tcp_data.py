"""Connections over TCP that carry a circuit's bytes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.abc import ByteStream, DataStream
from agentmesh.errors import AddressError, DialError
from agentmesh.runtime.nursery import open_background
from agentmesh.transports.proxy import DIRECT, ProxyRules
from agentmesh.transports.tcp import TcpTransport
from agentmesh.types import Address
from tests.transports.socket_pairs import descriptors

LOOPBACK = Address.parse("/ip4/127.0.0.1/tcp/0")
OTHERS = (
    "/ip4/192.0.2.1/tcp/1/ws",
    "/ip4/192.0.2.1/tcp/1/tls",
    "/ip4/192.0.2.1/tcp/1/http",
    "/memory/1",
    "/ip4/1.2.3.4/tcp/0",
)


@asynccontextmanager
async def open_data() -> AsyncGenerator[tuple[DataStream, ByteStream]]:
    """Both ends of a connection."""
    arrivals: list[ByteStream] = []
    came = trio.Event()

    async def keep(stream: ByteStream, source: Address | None) -> None:
        arrivals.append(stream)
        came.set()
        await trio.sleep_forever()

    async with TcpTransport().listen(LOOPBACK) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, keep)
        async with await TcpTransport().dial_data(listener.addresses[0]) as data:
            await came.wait()
            yield data, arrivals[0]


async def test_it_carries_bytes_both_ways_and_ends_by_halves() -> None:
    async with open_data() as (data, other):
        await data.wait_send_all_might_not_block()
        await data.send_all(b"there")
        await data.send_eof()
        assert await other.receive_some() == b"there"
        assert await other.receive_some() == b""
        await other.send_all(b"and back")
        assert await data.receive_some(3) == b"and"
        assert await data.receive_some() == b" back"


async def test_closing_it_now_wakes_whoever_waits() -> None:
    async with open_data() as (data, other), trio.open_nursery() as nursery:

        async def receive() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await data.receive_some()

        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        data.close_now()
        data.close_now()
        with pytest.raises(trio.ClosedResourceError):
            await data.send_all(b"x")
        assert await other.receive_some() == b""


def test_tcp_and_nothing_more_carries_circuits() -> None:
    tcp = TcpTransport(proxies=DIRECT)
    for text in ("/ip4/192.0.2.1/tcp/4001", "/ip6/2001:db8::1/tcp/4001", "/dns4/bücher.example/tcp/4001"):
        assert tcp.can_carry(Address.parse(text))
    assert [text for text in OTHERS if tcp.can_carry(Address.parse(text))] == []


@pytest.mark.parametrize("text", OTHERS)
async def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(AddressError):
        await TcpTransport(proxies=DIRECT).dial_data(Address.parse(text))


async def test_where_a_proxy_is_between_there_is_none() -> None:
    """A tunnel does not end by halves."""
    tcp = TcpTransport(proxies=ProxyRules.parse("http://proxy.example:3128", "direct.example"))
    assert not tcp.can_carry(Address.parse("/dns4/router.example/tcp/4001"))
    assert tcp.can_carry(Address.parse("/dns4/direct.example/tcp/4001"))
    with pytest.raises(AddressError):
        await tcp.dial_data(Address.parse("/dns4/router.example/tcp/4001"))


async def test_nobody_there_is_a_dial_error_and_leaves_nothing() -> None:
    async with TcpTransport().listen(LOOPBACK) as listener:
        (address,) = listener.addresses
    before = descriptors()
    with pytest.raises(DialError):
        await TcpTransport().dial_data(address)
    assert descriptors() == before
