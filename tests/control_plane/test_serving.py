"""The server on loopback: its time limits (on the virtual clock), its isolation, its end."""

import logging
import socket
from collections.abc import Callable

import httpx
import pytest
import trio
from starlette.types import Receive, Scope, Send
from trio.testing import MockClock

from agentmesh.control_plane import serving
from agentmesh.control_plane.serving import GRACE, HEADER_TIMEOUT, IDLE_TIMEOUT, LINGER, WRITE_TIMEOUT, serve_http

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
CLOSING = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


@pytest.fixture
def patient_clock() -> MockClock:
    """A virtual clock for sockets: it does not jump while bytes are on their way through the kernel."""
    return MockClock(autojump_threshold=0.05)


async def answer(send: Send, body: bytes = b"hello") -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(send)


async def failing(scope: Scope, receive: Receive, send: Send) -> None:
    raise LookupError("a bug")


async def connect(url: str) -> trio.SocketStream:
    parsed = httpx.URL(url)
    return await trio.open_tcp_stream(parsed.host, parsed.port or 0)


async def read_all(stream: trio.abc.Stream) -> bytes:
    return b"".join([bytes(chunk) async for chunk in stream])


async def test_requests_are_answered_one_after_another_on_a_connection() -> None:
    async with serve_http(hello, "127.0.0.1", 0) as url, httpx.AsyncClient() as http:
        for _ in range(3):
            assert (await http.get(url)).text == "hello"


@pytest.mark.parametrize(
    ("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "[::1]"), ("::", "[::1]")]
)
async def test_the_url_is_one_that_can_be_dialled(host: str, shown: str) -> None:
    async with serve_http(hello, host, 0) as url, httpx.AsyncClient() as http:
        assert url.startswith(f"http://{shown}:")
        assert (await http.get(url)).text == "hello"


async def test_http2_is_spoken_to_who_starts_with_it() -> None:
    settings_frame = bytes.fromhex("000000040000000000")
    async with serve_http(hello, "127.0.0.1", 0) as url, await connect(url) as stream:
        await stream.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings_frame)
        first = bytes(await stream.receive_some())
        assert first[3] == 4  # a SETTINGS frame


async def test_an_address_that_is_taken_is_named() -> None:
    async with serve_http(hello, "127.0.0.1", 0) as url:
        with pytest.raises(OSError, match=r"cannot listen on 127.0.0.1:\d+: Address already in use"):
            async with serve_http(hello, "127.0.0.1", httpx.URL(url).port or 0):
                pass


async def test_a_host_that_is_not_there_is_named() -> None:
    with pytest.raises(OSError, match="cannot listen on no such host:0"):
        async with serve_http(hello, "no such host", 0):
            pass


async def test_a_header_that_does_not_end_is_not_waited_for(patient_clock: MockClock) -> None:
    async with serve_http(hello, "127.0.0.1", 0) as url, await connect(url) as stream:
        began = trio.current_time()
        await stream.send_all(REQUEST[:10])
        assert await read_all(stream) == b""
        assert trio.current_time() - began == pytest.approx(HEADER_TIMEOUT + LINGER)


async def test_a_header_that_trickles_is_not_waited_for(patient_clock: MockClock) -> None:
    async with serve_http(hello, "127.0.0.1", 0) as url, await connect(url) as stream:
        began = trio.current_time()
        with pytest.raises(trio.BrokenResourceError):
            while True:
                await stream.send_all(b"x")
                await trio.sleep(1)
        assert HEADER_TIMEOUT <= trio.current_time() - began <= HEADER_TIMEOUT + LINGER + 2


@pytest.mark.parametrize("first", [b"", REQUEST], ids=["never used", "used once"])
async def test_an_idle_connection_is_closed(patient_clock: MockClock, first: bytes) -> None:
    async with serve_http(hello, "127.0.0.1", 0) as url, await connect(url) as stream:
        began = trio.current_time()
        await stream.send_all(first)
        await read_all(stream)
        assert trio.current_time() - began == pytest.approx(IDLE_TIMEOUT)


async def test_a_request_may_take_longer_than_a_header(patient_clock: MockClock) -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await trio.sleep(3 * HEADER_TIMEOUT)
        await answer(send)

    async with serve_http(slow, "127.0.0.1", 0) as url, await connect(url) as stream:
        await stream.send_all(CLOSING)
        assert (await read_all(stream)).endswith(b"hello")


async def test_a_client_that_does_not_read_is_dropped(patient_clock: MockClock) -> None:
    ended = trio.Event()

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, bytes(64 * 1024 * 1024))
        ended.set()

    async with serve_http(large, "127.0.0.1", 0) as url, await connect(url) as stream:
        began = trio.current_time()
        await stream.send_all(REQUEST)
        await ended.wait()
        assert trio.current_time() - began == pytest.approx(WRITE_TIMEOUT)


async def test_too_many_connections_are_told_so(monkeypatch: pytest.MonkeyPatch, patient_clock: MockClock) -> None:
    monkeypatch.setattr(serving, "MAX_CONNECTIONS", 1)
    async with serve_http(hello, "127.0.0.1", 0) as url:
        async with await connect(url) as first:
            await first.send_all(REQUEST)
            assert await first.receive_some()
            async with await connect(url) as second:
                assert b"503" in await read_all(second)
        await trio.sleep(2 * LINGER)
        async with await connect(url) as third:
            await third.send_all(CLOSING)
            assert b"200" in await read_all(third)


async def test_a_bug_in_the_app_costs_one_answer(caplog: pytest.LogCaptureFixture) -> None:
    async with serve_http(failing, "127.0.0.1", 0) as url, httpx.AsyncClient() as http:
        for _ in range(2):
            response = await http.get(url)
            assert (response.status_code, response.text) == (500, "")
    assert "LookupError" in caplog.text


@pytest.mark.parametrize(
    "garbage",
    [b"\x00" * 100, b"GET / HTTP/1.1\r\n\x00: x\r\n\r\n", b"\x16\x03\x01\x02\x00" * 20, b"G" * 100_000],
    ids=["zeros", "bad header", "TLS", "endless"],
)
async def test_garbage_does_not_reach_the_others(garbage: bytes) -> None:
    async with serve_http(hello, "127.0.0.1", 0) as url, httpx.AsyncClient() as http:
        async with await connect(url) as stream:
            await stream.send_all(garbage)
            with trio.move_on_after(1):
                await stream.receive_some()
        assert (await http.get(url)).text == "hello"


async def test_a_request_for_a_websocket_is_turned_down() -> None:
    async def no_websockets(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "websocket"
        await send({"type": "websocket.close"})

    upgrade = (
        b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
        b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    async with serve_http(no_websockets, "127.0.0.1", 0) as url, await connect(url) as stream:
        await stream.send_all(upgrade)
        assert (await read_all(stream)).startswith(b"HTTP/1.1 403")


async def test_a_connection_that_is_reset_does_not_reach_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async with serve_http(hello, "127.0.0.1", 0) as url, httpx.AsyncClient() as http:
        for sent in (b"", REQUEST[:10], REQUEST * 100):
            stream = await connect(url)
            await stream.send_all(sent)
            linger_off = b"\x01\x00\x00\x00\x00\x00\x00\x00"
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_off)
            await stream.aclose()
            assert (await http.get(url)).text == "hello"


async def test_whatever_a_connection_ends_in_is_logged_and_stays_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(connection: object, data: bytes) -> None:
        raise RuntimeError("a bug of a library")

    async with serve_http(hello, "127.0.0.1", 0) as url, httpx.AsyncClient() as http:
        with monkeypatch.context() as patched:
            patched.setattr("h11.Connection.receive_data", broken)
            async with await connect(url) as stream:
                await stream.send_all(REQUEST)
                assert await read_all(stream) == b""
        assert (await http.get(url)).text == "hello"
    assert "a bug of a library" in caplog.text
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == ["connection failed"]


async def test_stopping_lets_a_request_under_way_finish() -> None:
    begun, finish = trio.Event(), trio.Event()

    async def gated(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await finish.wait()
        await answer(send)

    async with trio.open_nursery() as nursery:
        received: list[bytes] = []

        async def ask(url: str) -> None:
            async with await connect(url) as stream:
                await stream.send_all(REQUEST)
                received.append(await read_all(stream))

        async with serve_http(gated, "127.0.0.1", 0) as url:
            nursery.start_soon(ask, url)
            await begun.wait()
            nursery.start_soon(release_later, finish)
    assert received[0].endswith(b"hello")


async def release_later(event: trio.Event) -> None:
    await trio.testing.wait_all_tasks_blocked()
    event.set()


async def never(scope: Scope, receive: Receive, send: Send) -> None:
    await trio.sleep_forever()


async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(send, bytes(64 * 1024 * 1024))


@pytest.mark.parametrize("app", [never, endless])
async def test_stopping_takes_no_longer_than_its_grace(
    patient_clock: MockClock, app: Callable[[Scope, Receive, Send], object]
) -> None:
    async with trio.open_nursery():
        async with serve_http(app, "127.0.0.1", 0) as url:  # type: ignore[arg-type]
            stream = await connect(url)
            await stream.send_all(REQUEST)
            await trio.testing.wait_all_tasks_blocked()
            began = trio.current_time()
        assert trio.current_time() - began <= GRACE
        await stream.aclose()


async def test_stopping_with_idle_connections_is_immediate(patient_clock: MockClock) -> None:
    async with serve_http(hello, "127.0.0.1", 0) as url:
        used, unused = await connect(url), await connect(url)
        await used.send_all(REQUEST)
        received = b""
        while not received.endswith(b"hello"):
            received += bytes(await used.receive_some())
        began = trio.current_time()
    assert trio.current_time() == began
    assert await read_all(used) == await read_all(unused) == b""
    await used.aclose()
    await unused.aclose()
