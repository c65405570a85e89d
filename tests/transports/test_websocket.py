from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
import trio_websocket
from trio.testing import wait_all_tasks_blocked

from agentmesh.abc import ByteStream, Transport
from agentmesh.errors import AddressError, DialError
from agentmesh.runtime.nursery import open_background
from agentmesh.testing import check_transport, leaves_nothing
from agentmesh.testing.transport_setup import echo, pattern, read_exactly
from agentmesh.transports.websocket import WebSocketConfig, WebSocketTransport
from agentmesh.transports.websocket_stream import CLOSE_TIMEOUT, MAX_OPENING_BYTES, MESSAGE_BYTES
from agentmesh.types import Address
from tests.transports.certificates import Authority
from tests.transports.test_tcp import Names

WS = Address.parse("/ip4/127.0.0.1/tcp/0/ws")


@attrs.frozen
class Visit:
    """A client that is trio-websocket's own, at a listener of ours."""

    tcp: trio.SocketStream  # under the client
    client: trio_websocket.WebSocketConnection
    stream: ByteStream  # what our listener made of it


@asynccontextmanager
async def visit() -> AsyncGenerator[Visit]:
    accepted, arrivals = trio.open_memory_channel[ByteStream](0)

    async def hold(stream: ByteStream, source: Address | None) -> None:
        await accepted.send(stream)
        await trio.sleep_forever()

    async with WebSocketTransport().listen(WS) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, hold)
        async with await trio.open_tcp_stream("127.0.0.1", int(listener.addresses[0].value("tcp") or 0)) as tcp:
            client = await trio_websocket.wrap_client_stream(nursery, tcp, "127.0.0.1", "/ws")
            yield Visit(tcp, client, await arrivals.receive())


@asynccontextmanager
async def raw_server(handler: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncGenerator[Address]:
    """A TCP server of any manners; where to dial it as if it spoke WebSocket."""
    async with open_background() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handler, [listener])
        yield Address.parse(f"/ip4/127.0.0.1/tcp/{listener.socket.getsockname()[1]}/ws")


async def test_conforms() -> None:
    @asynccontextmanager
    async def make() -> AsyncGenerator[tuple[Transport, Transport]]:
        yield WebSocketTransport(), WebSocketTransport()

    await check_transport(make, WS)


async def test_conforms_over_tls(tmp_path: Path) -> None:
    authority = Authority()
    client = WebSocketTransport(client_context=authority.client_context())
    server = WebSocketTransport(server_context=authority.server_context(tmp_path, "127.0.0.1"))

    @asynccontextmanager
    async def make() -> AsyncGenerator[tuple[Transport, Transport]]:
        yield client, server

    await check_transport(make, Address.parse("/ip4/127.0.0.1/tcp/0/wss"))


# ── addresses and certificates ──


@pytest.mark.parametrize(
    "text", ["/memory/1", "/ip4/127.0.0.1/tcp/1", "/ip4/127.0.0.1/tcp/1/tls", "/ip4/1.2.3.4/tcp/1/ws/p2p-circuit"]
)
async def test_addresses_of_others(text: str) -> None:
    address = Address.parse(text)
    assert not WebSocketTransport().can_dial(address)
    assert not WebSocketTransport().can_listen(address)


async def test_tls_is_not_served_without_a_certificate() -> None:
    address = Address.parse("/ip4/127.0.0.1/tcp/0/wss")
    assert not WebSocketTransport().can_listen(address)
    with pytest.raises(AddressError):
        async with WebSocketTransport().listen(address):
            pass


@pytest.mark.parametrize(
    ("where", "reached"),
    [
        ("/dns4/router.example/tcp/{}/wss", True),
        ("/dns/router.example/tcp/{}/tls/ws", True),
        ("/ip4/127.0.0.1/tcp/{}/tls/sni/router.example/ws", True),
        ("/dns4/other.example/tcp/{}/wss", False),
        ("/ip4/127.0.0.1/tcp/{}/wss", False),
        ("/ip4/127.0.0.1/tcp/{}/tls/sni/other.example/ws", False),
        ("/ip4/127.0.0.1/tcp/{}/ws", False),
    ],
)
async def test_the_certificate_has_to_name_the_host(tmp_path: Path, where: str, reached: bool) -> None:
    trio.socket.set_custom_hostname_resolver(Names("127.0.0.1"))
    authority = Authority()
    client = WebSocketTransport(client_context=authority.client_context())
    server = WebSocketTransport(server_context=authority.server_context(tmp_path, "router.example"))
    async with server.listen(Address.parse("/ip4/127.0.0.1/tcp/0/wss")) as listener, open_background() as nursery:
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
    server = WebSocketTransport(server_context=Authority().server_context(tmp_path, "127.0.0.1"))
    async with server.listen(Address.parse("/ip4/127.0.0.1/tcp/0/wss")) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, echo)
        with pytest.raises(DialError, match="not accepted: unable to get local issuer certificate"):
            async with WebSocketTransport().dial(listener.addresses[0]):
                pass


async def test_tls_to_a_plain_server_fails() -> None:
    async with WebSocketTransport().listen(WS) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, echo)
        address = Address.parse(f"/ip4/127.0.0.1/tcp/{listener.addresses[0].value('tcp')}/wss")
        with pytest.raises(DialError, match="no TLS"):
            async with WebSocketTransport().dial(address):
                pass


# ── servers that are none ──


async def _read_request(stream: trio.SocketStream) -> None:
    request = b""
    while b"\r\n\r\n" not in request:
        request += await stream.receive_some()


async def _say_nothing(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def _hang_up(stream: trio.SocketStream) -> None:
    await _read_request(stream)


async def _answer(answer: bytes, stream: trio.SocketStream) -> None:
    await _read_request(stream)
    await stream.send_all(answer)
    while await stream.receive_some():
        pass


async def _refuse_at_length(stream: trio.SocketStream) -> None:
    await _read_request(stream)
    await stream.send_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 1000000000\r\n\r\n")
    while True:
        await stream.send_all(bytes(MAX_OPENING_BYTES))


SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (_hang_up, "hung up"),
        (partial(_answer, b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"), "HTTP status 403"),
        (partial(_answer, b"HTTP/1.1 204 No Content\r\n\r\n"), "HTTP status 204"),
        (partial(_answer, b"HTTP/1.1 100 Continue\r\n\r\n"), "HTTP status 100"),
        (partial(_answer, SWITCH + b"Sec-WebSocket-Accept: wrong\r\n\r\n"), "handshake is wrong"),
        (partial(_answer, SWITCH + b"Connection: \xff\r\n\r\n"), "handshake is wrong"),
        (partial(_answer, b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), "handshake is wrong"),
        (_refuse_at_length, "hung up"),
    ],
)
async def test_servers_of_another_kind(handler: Callable[[trio.SocketStream], Awaitable[None]], says: str) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        try:
            await handler(stream)
        except trio.BrokenResourceError:
            return

    async with raw_server(serve) as address, leaves_nothing():
        with pytest.raises(DialError, match=says) as caught:
            async with WebSocketTransport().dial(address):
                pass
        assert str(address) in str(caught.value)


@pytest.mark.parametrize("suffix", ["ws", "wss"])
async def test_a_server_that_says_nothing_is_given_up(suffix: str, patient_clock: trio.testing.MockClock) -> None:
    async with raw_server(_say_nothing) as address:
        port = address.value("tcp")
        with pytest.raises(DialError, match="in time"):
            async with WebSocketTransport().dial(Address.parse(f"/ip4/127.0.0.1/tcp/{port}/{suffix}")):
                pass
    assert trio.current_time() == pytest.approx(WebSocketConfig().handshake_timeout)


# ── what a peer may send ──


async def test_messages_are_only_bytes_of_the_stream() -> None:
    async with visit() as on:
        sizes = [1, 0, 2, 70_000, 0, 3, 1024 * 1024]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_messages, on.client, sizes)
            assert await read_exactly(on.stream, sum(sizes)) == pattern(0, sum(sizes))
            await on.client.aclose()
            assert await on.stream.receive_some() == b""
            assert await on.stream.receive_some() == b""


async def send_messages(client: trio_websocket.WebSocketConnection, sizes: list[int]) -> None:
    sent = 0
    for size in sizes:
        await client.send_message(pattern(sent, size))
        sent += size


async def test_what_is_sent_comes_in_messages_of_a_bounded_size() -> None:
    async with visit() as on, trio.open_nursery() as nursery:
        nursery.start_soon(on.stream.send_all, pattern(0, 3 * MESSAGE_BYTES + 5))
        messages = [await on.client.get_message() for _ in range(4)]
        assert [len(message) for message in messages] == [MESSAGE_BYTES] * 3 + [5]
        assert b"".join(message for message in messages if isinstance(message, bytes)) == pattern(
            0, 3 * MESSAGE_BYTES + 5
        )


async def test_a_ping_is_answered_while_nobody_reads() -> None:
    async with visit() as on:
        await on.client.ping(b"there?")


async def test_a_text_message_closes_the_connection() -> None:
    async with visit() as on:
        await on.client.send_message("not bytes")
        with pytest.raises(trio.BrokenResourceError, match="text"):
            await on.stream.receive_some()
        with pytest.raises(trio_websocket.ConnectionClosed):
            await on.client.get_message()
        assert on.client.closed is not None
        assert on.client.closed.code == 1003
        with pytest.raises(trio.BrokenResourceError):
            await on.stream.send_all(b"x")


async def test_a_message_beyond_the_bound_closes_the_connection() -> None:
    async with visit() as on:
        await on.client.send_message(bytes(1024 * 1024 + 1))
        with pytest.raises(trio.BrokenResourceError, match="1009"):
            await on.stream.receive_some()
        with pytest.raises(trio_websocket.ConnectionClosed):
            await on.client.get_message()


@pytest.mark.parametrize(("code", "ends"), [(1000, True), (1001, True), (1011, False), (3000, False)])
async def test_the_reason_for_closing_decides_whether_it_is_an_end(code: int, ends: bool) -> None:
    async with visit() as on, trio.open_nursery() as nursery:
        nursery.start_soon(on.client.aclose, code)
        if ends:
            assert await on.stream.receive_some() == b""
        else:
            with pytest.raises(trio.BrokenResourceError, match=str(code)):
                await on.stream.receive_some()


async def test_a_connection_that_is_just_gone_is_broken() -> None:
    async with visit() as on:
        await on.tcp.aclose()
        with pytest.raises(trio.BrokenResourceError, match="1006"):
            await on.stream.receive_some()


async def test_frames_that_are_none_break_the_stream() -> None:
    async with visit() as on:
        await on.tcp.send_all(b"\xff" * 20)
        with pytest.raises(trio.BrokenResourceError, match="1002"):
            await on.stream.receive_some()


async def test_a_ping_that_crosses_our_closing_does_no_harm() -> None:
    """trio-websocket's task fails on it; that is caught, and is an end like another."""
    async with visit() as on, trio.open_nursery() as nursery:
        nursery.start_soon(on.client.ping, b"late")
        await on.stream.aclose()
        nursery.cancel_scope.cancel()


# ── cancelling and closing ──


async def test_a_send_cancelled_in_a_message_breaks_the_stream(patient_clock: trio.testing.MockClock) -> None:
    """What would come next would be read as the rest of that message."""
    async with visit() as on:
        with trio.move_on_after(1) as scope:
            await on.stream.send_all(bytes(64 * 1024 * 1024))
        assert scope.cancelled_caught
        with pytest.raises(trio.BrokenResourceError):
            await on.stream.send_all(b"x")


async def test_closing_waits_for_the_peer_no_longer_than_that(patient_clock: trio.testing.MockClock) -> None:
    async def accept_and_freeze(stream: trio.SocketStream) -> None:
        async with trio.open_nursery() as nursery:
            request = await trio_websocket.wrap_server_stream(nursery, stream)
            await request.accept()
            nursery.cancel_scope.cancel()
        await trio.sleep_forever()

    async with raw_server(accept_and_freeze) as address:
        async with WebSocketTransport().dial(address):
            began = trio.current_time()
        assert trio.current_time() - began == pytest.approx(CLOSE_TIMEOUT)


async def test_waiting_for_room_ends_when_there_is_some() -> None:
    async with visit() as on, trio.open_nursery() as nursery:
        await on.stream.wait_send_all_might_not_block()
        nursery.start_soon(on.stream.send_all, bytes(256 * MESSAGE_BYTES))
        await wait_all_tasks_blocked(0.01)
        with pytest.raises(trio.BusyResourceError):
            await on.stream.wait_send_all_might_not_block()
        for _ in range(256):
            await on.client.get_message()
