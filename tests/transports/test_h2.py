from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest
import trio
import trio.testing
from h2.errors import ErrorCodes

from agentmesh.abc import Transport
from agentmesh.errors import AddressError, DialError
from agentmesh.runtime.nursery import open_background
from agentmesh.testing import check_transport, leaves_nothing
from agentmesh.testing.transport_setup import echo
from agentmesh.transports.h2 import H2Config, H2Transport
from agentmesh.transports.h2_machine import GREETING
from agentmesh.transports.h2_stream import CLOSE_TIMEOUT
from agentmesh.transports.tcp import TcpTransport
from agentmesh.transports.websocket import WebSocketTransport
from agentmesh.types import Address
from tests.transports.certificates import Authority
from tests.transports.test_tcp import Names

H2 = Address.parse("/ip4/127.0.0.1/tcp/0/http")
H2_TLS = Address.parse("/ip4/127.0.0.1/tcp/0/tls/http")


async def test_conforms() -> None:
    @asynccontextmanager
    async def make() -> AsyncGenerator[tuple[Transport, Transport]]:
        yield H2Transport(), H2Transport()

    await check_transport(make, H2)


async def test_conforms_over_tls(tmp_path: Path) -> None:
    authority = Authority()
    client = H2Transport(client_context=authority.client_context())
    server = H2Transport(server_context=authority.server_context(tmp_path, "127.0.0.1"))

    @asynccontextmanager
    async def make() -> AsyncGenerator[tuple[Transport, Transport]]:
        yield client, server

    await check_transport(make, H2_TLS)


# ── addresses and certificates ──


@pytest.mark.parametrize(
    "text",
    [
        "/memory/1",
        "/ip4/127.0.0.1/tcp/1",
        "/ip4/127.0.0.1/tcp/1/ws",
        "/ip4/127.0.0.1/tcp/1/tls/ws",
        "/ip4/127.0.0.1/tcp/1/tls",
        "/ip4/1.2.3.4/tcp/1/http/p2p-circuit",
    ],
)
async def test_addresses_of_others(text: str) -> None:
    address = Address.parse(text)
    assert not H2Transport().can_dial(address)
    assert not H2Transport().can_listen(address)


@pytest.mark.parametrize("suffix", ["http", "https", "tls/http", "tls/sni/a.example/http"])
async def test_no_other_transport_takes_its_addresses(suffix: str) -> None:
    address = Address.parse(f"/ip4/127.0.0.1/tcp/1/{suffix}")
    assert [type(t) for t in (TcpTransport(), WebSocketTransport(), H2Transport()) if t.can_dial(address)] == [
        H2Transport
    ]
    assert Address.from_bytes(address.to_bytes()) == address


async def test_tls_is_not_served_without_a_certificate() -> None:
    assert not H2Transport().can_listen(H2_TLS)
    with pytest.raises(AddressError):
        async with H2Transport().listen(H2_TLS):
            pass


@pytest.mark.parametrize(
    ("where", "reached"),
    [
        ("/dns4/router.example/tcp/{}/tls/http", True),
        ("/dns/router.example/tcp/{}/https", True),
        ("/ip4/127.0.0.1/tcp/{}/tls/sni/router.example/http", True),
        ("/dns4/other.example/tcp/{}/tls/http", False),
        ("/ip4/127.0.0.1/tcp/{}/tls/http", False),
        ("/ip4/127.0.0.1/tcp/{}/tls/sni/other.example/http", False),
        ("/ip4/127.0.0.1/tcp/{}/http", False),
    ],
)
async def test_the_certificate_has_to_name_the_host(tmp_path: Path, where: str, reached: bool) -> None:
    trio.socket.set_custom_hostname_resolver(Names("127.0.0.1"))
    authority = Authority()
    client = H2Transport(client_context=authority.client_context())
    server = H2Transport(server_context=authority.server_context(tmp_path, "router.example"))
    async with server.listen(H2_TLS) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, echo)
        address = Address.parse(where.format(listener.addresses[0].value("tcp")))
        assert client.can_dial(address)
        assert await reaches(client, address) == reached


async def reaches(client: Transport, address: Address) -> bool:
    try:
        async with client.dial(address) as stream:
            await stream.send_all(b"hello")
            return await stream.receive_some() == b"hello"
    except DialError:
        return False


async def test_an_authority_that_nobody_knows_is_not_trusted(tmp_path: Path) -> None:
    server = H2Transport(server_context=Authority().server_context(tmp_path, "127.0.0.1"))
    async with server.listen(H2_TLS) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, echo)
        with pytest.raises(DialError, match="not accepted: unable to get local issuer certificate"):
            async with H2Transport().dial(listener.addresses[0]):
                pass


async def test_a_tls_server_has_to_offer_http2(tmp_path: Path) -> None:
    authority = Authority()
    server = WebSocketTransport(server_context=authority.server_context(tmp_path, "127.0.0.1"))
    async with server.listen(Address.parse("/ip4/127.0.0.1/tcp/0/wss")) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, echo)
        address = Address.parse(f"/ip4/127.0.0.1/tcp/{listener.addresses[0].value('tcp')}/https")
        with pytest.raises(DialError, match="does not offer HTTP/2"):
            async with H2Transport(client_context=authority.client_context()).dial(address):
                pass


# ── servers that are none, or do as they like ──


@asynccontextmanager
async def raw_server(handler: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncGenerator[Address]:
    """A TCP server of any manners; where to dial it as if it spoke HTTP/2."""

    async def serve(stream: trio.SocketStream) -> None:
        try:
            await handler(stream)
        except trio.BrokenResourceError:
            return

    async with open_background() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield Address.parse(f"/ip4/127.0.0.1/tcp/{listener.socket.getsockname()[1]}/http")


async def _hang_up(stream: trio.SocketStream) -> None:
    await stream.receive_some()


async def _speak_http1(stream: trio.SocketStream) -> None:
    await stream.receive_some()
    await stream.send_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    while await stream.receive_some():
        pass


async def _say_nothing(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


Deed = Callable[[h2.connection.H2Connection, int], None]


async def _serve_h2(deed: Deed, stream: trio.SocketStream) -> None:
    """A server of the h2 package that answers a request with `deed`, and nothing else with anything."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    connection.initiate_connection()
    while data := await stream.receive_some():
        for event in connection.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                deed(connection, event.stream_id)
        await stream.send_all(connection.data_to_send())


def answer(status: int, connection: h2.connection.H2Connection, stream_id: int) -> None:
    connection.send_headers(stream_id, [(":status", str(status))])


def accept(connection: h2.connection.H2Connection, stream_id: int) -> None:
    answer(200, connection, stream_id)
    connection.send_data(stream_id, GREETING)


def answer_and_end(connection: h2.connection.H2Connection, stream_id: int) -> None:
    answer(200, connection, stream_id)
    connection.end_stream(stream_id)


def answer_and_reset(connection: h2.connection.H2Connection, stream_id: int) -> None:
    accept(connection, stream_id)
    connection.send_data(stream_id, b"before")
    connection.reset_stream(stream_id)


def answer_and_go_away(connection: h2.connection.H2Connection, stream_id: int) -> None:
    accept(connection, stream_id)
    connection.send_data(stream_id, b"before")
    connection.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)


def go_away(connection: h2.connection.H2Connection, stream_id: int) -> None:
    connection.close_connection(last_stream_id=0)


def reset(connection: h2.connection.H2Connection, stream_id: int) -> None:
    connection.reset_stream(stream_id)


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (_hang_up, "hung up"),
        (_speak_http1, "does not speak HTTP/2"),
        (partial(_serve_h2, partial(answer, 403)), "HTTP status 403"),
        (partial(_serve_h2, partial(answer, 204)), "HTTP status 204"),
        (partial(_serve_h2, answer_and_end), "another protocol"),
        (partial(_serve_h2, reset), "reset"),
        (partial(_serve_h2, go_away), "GOAWAY"),
    ],
)
async def test_servers_that_refuse(handler: Callable[[trio.SocketStream], Awaitable[None]], says: str) -> None:
    async with raw_server(handler) as address, leaves_nothing():
        with pytest.raises(DialError, match=says) as caught:
            async with H2Transport(config=H2Config(handshake_timeout=1e6)).dial(address):
                pass
        assert str(address) in str(caught.value)


@pytest.mark.parametrize("suffix", ["http", "https"])
async def test_a_server_that_says_nothing_is_given_up(suffix: str, patient_clock: trio.testing.MockClock) -> None:
    async with raw_server(_say_nothing) as address:
        port = address.value("tcp")
        with pytest.raises(DialError, match="in time"):
            async with H2Transport().dial(Address.parse(f"/ip4/127.0.0.1/tcp/{port}/{suffix}")):
                pass
    assert trio.current_time() == pytest.approx(H2Config().handshake_timeout)


@pytest.mark.parametrize("deed", [answer_and_reset, answer_and_go_away])
async def test_a_stream_that_is_cut_breaks_behind_what_came_before(deed: Deed) -> None:
    async with raw_server(partial(_serve_h2, deed)) as address, H2Transport().dial(address) as stream:
        assert await stream.receive_some() == b"before"
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
        with pytest.raises(trio.BrokenResourceError):
            await stream.send_all(b"x")


async def test_closing_waits_for_the_peer_no_longer_than_that(patient_clock: trio.testing.MockClock) -> None:
    async with raw_server(partial(_serve_h2, accept)) as address:
        async with H2Transport().dial(address):
            began = trio.current_time()
        assert trio.current_time() - began == pytest.approx(CLOSE_TIMEOUT)


async def test_waiting_for_room_ends_when_there_is_some() -> None:
    async with H2Transport().listen(H2) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, echo)
        async with H2Transport().dial(listener.addresses[0]) as stream, trio.open_nursery() as senders:
            await stream.wait_send_all_might_not_block()
            senders.start_soon(stream.send_all, bytes(32 * 1024 * 1024))
            await trio.testing.wait_all_tasks_blocked(0.01)
            with pytest.raises(trio.BusyResourceError):
                await stream.wait_send_all_might_not_block()
            while await stream.receive_some():
                if not senders.child_tasks:
                    break
            await stream.wait_send_all_might_not_block()
