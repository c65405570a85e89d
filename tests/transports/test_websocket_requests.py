"""Whoever comes to a WebSocket port and is no client of ours gets an answer, and costs nothing."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from agentmesh.abc import ByteStream
from agentmesh.errors import DialError
from agentmesh.runtime.nursery import open_background
from agentmesh.testing import leaves_nothing
from agentmesh.testing.transport_setup import echo
from agentmesh.transports.websocket import AGENT_PATH, PATH, WebSocketConfig, WebSocketTransport
from agentmesh.transports.websocket_request import MAX_HEAD_BYTES
from agentmesh.types import Address
from tests.transports.certificates import Authority

UPGRADE = (
    b"GET %s HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%s\r\n"
)


@asynccontextmanager
async def port(config: WebSocketConfig | None = None, handled: list[ByteStream] | None = None) -> AsyncGenerator[int]:
    """A listening port of ours; its handler echoes, and notes the streams that it got."""

    async def handle(stream: ByteStream, source: Address | None) -> None:
        if handled is not None:
            handled.append(stream)
        await echo(stream, source)

    transport = WebSocketTransport(config=config)
    async with transport.listen(Address.parse("/ip4/127.0.0.1/tcp/0/ws")) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, handle)
        yield int(listener.addresses[0].value("tcp") or 0)


async def ask(port: int, request: bytes) -> bytes:
    """All that the server answers until it hangs up."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        return await _ask(stream, request)


async def _ask(stream: trio.abc.Stream, request: bytes) -> bytes:
    answer = bytearray()
    with suppress(trio.BrokenResourceError):
        await stream.send_all(request)
        while data := await stream.receive_some():
            answer += data
    return bytes(answer)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", b"404 Not Found"),
        (UPGRADE % (b"/other", b""), b"404 Not Found"),
        (b"GET /ws HTTP/1.1\r\nHost: a.example\r\n\r\n", b"426 Upgrade Required"),
        (b"GET /ws HTTP/1.1\r\nHost: a.example\r\nUpgrade: h2c\r\n\r\n", b"426 Upgrade Required"),
        (b"GET /ws/agent/v1 HTTP/1.1\r\nHost: a.example\r\n\r\n", b"426 Upgrade Required"),
        (UPGRADE % (b"/ws/agent/v2", b""), b"404 Not Found"),
        (UPGRADE % (b"/ws%2Fagent", b""), b"404 Not Found"),
        (b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello", b"404 Not Found"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"404 Not Found"),
        (b"no HTTP at all\r\n\r\n", b"400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a ClientHello\r\n\r\n", b"400 Bad Request"),
        (b"GET /ws HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES, b"431 Request Header Fields Too Large"),
        # these look right, and the WebSocket library refuses them
        (UPGRADE.replace(b"13", b"12") % (b"/ws", b""), b"426"),
        (UPGRADE.replace(b"GET", b"PUT") % (b"/ws", b""), b"400"),
        (UPGRADE.replace(b"Connection: Upgrade", b"Connection: close") % (b"/ws", b""), b"400"),
    ],
)
async def test_requests_of_others_are_answered(request_bytes: bytes, status: bytes) -> None:
    handled: list[ByteStream] = []
    async with port(handled=handled) as number, leaves_nothing():
        answer = await ask(number, request_bytes)
        assert answer.startswith(b"HTTP/1.1 " + status)
    assert handled == []


async def test_an_answer_is_a_whole_http_response() -> None:
    async with port() as number:
        answer = await ask(number, b"GET /ws HTTP/1.1\r\nHost: a.example\r\n\r\n")
    head, body = answer.split(b"\r\n\r\n")
    assert b"Upgrade: websocket" in head
    assert b"Connection: close" in head
    assert f"Content-Length: {len(body)}".encode() in head


@pytest.mark.parametrize("header", [b"Sec-WebSocket-Extensions: \xff\r\n", b"Sec-WebSocket-Protocol: \xff\r\n"])
async def test_headers_that_the_library_chokes_on_end_one_connection(header: bytes) -> None:
    async with port() as number, leaves_nothing():
        assert await ask(number, UPGRADE % (b"/ws", header)) == b""
        assert (await ask(number, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize("target", [b"/ws?token=1", b"/", b"/ws/agent/v1"])
async def test_a_query_is_no_other_path_and_the_root_is_where_libp2p_asks(target: bytes) -> None:
    async with port() as number, await trio.open_tcp_stream("127.0.0.1", number) as stream:
        await stream.send_all(UPGRADE % (target, b""))
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 101")


@pytest.mark.parametrize("path", [PATH, AGENT_PATH])
async def test_a_dialer_asks_for_its_path(path: str) -> None:
    transport, heads = WebSocketTransport(path=path), list[bytes]()

    async def answer(stream: trio.SocketStream) -> None:
        heads.append(bytes(await stream.receive_some()))
        await stream.send_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    async with open_background() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
        address = Address.parse(f"/ip4/127.0.0.1/tcp/{listener.socket.getsockname()[1]}/ws")
        with pytest.raises(DialError):
            async with transport.dial(address):
                pass
        nursery.cancel_scope.cancel()
    assert heads[0].startswith(f"GET {path} HTTP/1.1\r\n".encode())


@pytest.mark.parametrize("sent", [b"", b"GET /ws HT"])
async def test_a_client_that_leaves_leaves_nothing(sent: bytes) -> None:
    async with port() as number, leaves_nothing(), await trio.open_tcp_stream("127.0.0.1", number) as stream:
        await stream.send_all(sent)


@pytest.mark.parametrize("sent", [b"", b"GET /ws HTTP/1.1\r\nHost: a.exam"])
async def test_a_slow_client_is_hung_up_on(sent: bytes, patient_clock: trio.testing.MockClock) -> None:
    config = WebSocketConfig(handshake_timeout=7.0)
    async with port(config) as number:
        began = trio.current_time()
        assert await ask(number, sent) == b""
        assert trio.current_time() - began == pytest.approx(7.0)


async def test_handshakes_at_once_are_bounded() -> None:
    """The one that takes longest gives way, so that silent clients keep nobody out."""
    config = WebSocketConfig(max_handshakes=3, handshake_timeout=1e6)
    async with port(config) as number:
        first = await trio.open_tcp_stream("127.0.0.1", number)
        others = [await trio.open_tcp_stream("127.0.0.1", number) for _ in range(2)]
        async with first:
            answer = await ask(number, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 404")
            assert await first.receive_some() == b""
        for other in others:
            async with other:
                assert (await _ask(other, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 404")


async def test_it_is_the_same_over_tls(tmp_path: Path) -> None:
    authority = Authority()
    transport = WebSocketTransport(server_context=authority.server_context(tmp_path, "127.0.0.1"))
    async with (
        transport.listen(Address.parse("/ip4/127.0.0.1/tcp/0/wss")) as listener,
        open_background() as nursery,
        leaves_nothing(),
    ):
        nursery.start_soon(listener.serve, echo)
        number = int(listener.addresses[0].value("tcp") or 0)
        tcp = await trio.open_tcp_stream("127.0.0.1", number)
        context = authority.client_context()
        async with trio.SSLStream(tcp, context, server_hostname="127.0.0.1", https_compatible=True) as stream:
            assert (await _ask(stream, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.1 404")
        assert b"HTTP" not in await ask(number, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        nursery.cancel_scope.cancel()
