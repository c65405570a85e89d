"""One exchange over a stream, as it goes when nobody fails; and more than was wanted."""

import logging

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Admission
from agentmesh.errors import StreamResetError
from agentmesh.protocols.http import (
    HTTP_ID,
    INFORMATIONAL,
    TRAILERS,
    CallerLeftError,
    HttpLimits,
    Message,
    Receive,
    Scope,
    Send,
    protocol,
)
from agentmesh.testing.cancellation import cancel_at_every_await
from tests.protocols.http.exchanges import BODY, GET, POST, START, ask, asked, echo, hi, read_all
from tests.services.mesh import MemoryStream, open_mesh


def test_the_protocol() -> None:
    assert (protocol(hi).id, protocol(hi).admission, protocol(hi).run) == (HTTP_ID, Admission.ANYONE, None)


async def test_a_request_and_its_answer() -> None:
    async with open_mesh(hi) as mesh:
        answer = await ask(mesh, GET)
    assert answer == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi"


async def test_a_body_streams_both_ways() -> None:
    async with asked(echo, POST) as stream:
        head = await stream.receive_some()
        assert head.endswith(b"\r\n\r\n")  # before any of the body
        await stream.send_all(b"ab")
        assert await stream.receive_some() == b"2\r\nab\r\n"
        await stream.send_all(b"cd")
        assert await read_all(stream) == b"2\r\ncd\r\n0\r\n\r\n"


async def test_the_head_leaves_with_the_body_when_that_is_there() -> None:
    async with asked(hi, GET) as stream:
        assert (await stream.receive_some()).endswith(b"\r\n\r\nhi")


async def test_the_head_leaves_alone_when_the_application_dawdles(autojump_clock: MockClock) -> None:
    async def dawdle(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await trio.sleep(5)
        await send(BODY)

    async with asked(dawdle, GET) as stream:
        assert (await stream.receive_some()).endswith(b"\r\n\r\n")
        assert trio.current_time() < 5
        assert await read_all(stream) == b"hi"


async def test_a_caller_may_end_its_side_and_wait() -> None:
    async with open_mesh(echo) as mesh:
        stream = mesh.open_stream()
        await stream.send_all(POST + b"1234")
        await stream.send_eof()
        assert (await read_all(stream)).endswith(b"4\r\n1234\r\n0\r\n\r\n")


async def test_continue_is_said_when_the_application_wants_the_body() -> None:
    request = POST.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")

    async def read(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await hi(scope, receive, send)

    async with asked(read, request) as stream:
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 100 ")
        await stream.send_all(b"1234")
        assert (await read_all(stream)).endswith(b"hi")
    async with asked(hi, request) as stream:
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")


async def test_head_gets_no_body() -> None:
    async with open_mesh(hi) as mesh:
        assert (await ask(mesh, GET.replace(b"GET", b"HEAD"))).endswith(
            b"content-length: 2\r\nconnection: close\r\n\r\n"
        )


async def test_what_is_no_request_costs_the_stream() -> None:
    async with open_mesh(hi) as mesh:
        answer = await ask(mesh, b"\x16\x03\x01\x02\x00 hello\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"x-mesh-error: malformed" in answer
        assert (await ask(mesh, GET)).endswith(b"hi")


async def test_a_broken_body_is_answered_400_before_the_application_answers() -> None:
    heard: list[str] = []

    async def listen(scope: Scope, receive: Receive, send: Send) -> None:
        heard.append((await receive())["type"])
        with pytest.raises(CallerLeftError):
            await send(START)

    async with asked(listen, POST.replace(b"Content-Length: 4", b"Transfer-Encoding: chunked")) as stream:
        await stream.send_all(b"nonsense\r\n")
        assert (await read_all(stream)).startswith(b"HTTP/1.1 400 ")
    assert heard == ["http.disconnect"]


async def test_a_broken_body_cuts_an_answer_that_has_begun() -> None:
    async with asked(echo, POST) as stream:
        await stream.send_all(b"12345")
        with pytest.raises(StreamResetError):
            await read_all(stream)


async def test_a_head_that_does_not_come_is_answered_408(autojump_clock: MockClock) -> None:
    async with open_mesh(hi, HttpLimits(head_timeout=3)) as mesh:
        assert (await ask(mesh, GET[:-1])).startswith(b"HTTP/1.1 408 ")
        assert trio.current_time() < 4


async def test_a_caller_that_says_nothing_and_leaves() -> None:
    async with open_mesh(hi) as mesh:
        stream = mesh.open_stream()
        await wait_all_tasks_blocked()
        stream.reset()
        await mesh.check_idle()
        stream = mesh.open_stream()
        await stream.send_eof()
        with pytest.raises(StreamResetError):
            await stream.receive_some()


# ── more than was wanted ──


async def test_no_more_of_a_body_is_read_than_the_application_takes() -> None:
    proceed = trio.Event()
    sizes: list[int] = []

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await proceed.wait()
        while (message := await receive())["more_body"]:
            sizes.append(len(message["body"]))
        await hi(scope, receive, send)

    request = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n"
    async with open_mesh(slow, HttpLimits(max_unread_bytes=2000), window=1000) as mesh, trio.open_nursery() as nursery:
        stream = mesh.open_stream()
        nursery.start_soon(stream.send_all, request + bytes(1_000_000))
        await wait_all_tasks_blocked()
        proceed.set()
        assert (await read_all(stream)).endswith(b"hi")
    assert max(sizes) <= 3000


async def test_a_small_request_that_is_not_wanted_is_let_in() -> None:
    async with open_mesh(hi, window=1000) as mesh, trio.open_nursery() as nursery:
        stream = mesh.open_stream()
        nursery.start_soon(stream.send_all, POST.replace(b": 4", b": 9000") + bytes(9000))
        assert (await read_all(stream)).endswith(b"hi")


async def test_a_large_one_is_cut_behind_its_answer() -> None:
    async with open_mesh(hi, HttpLimits(max_drain_bytes=5000), window=1000) as mesh, trio.open_nursery() as nursery:
        stream = mesh.open_stream()

        async def pour() -> None:
            with pytest.raises(StreamResetError):
                await stream.send_all(POST.replace(b": 4", b": 900000") + bytes(900_000))

        nursery.start_soon(pour)
        assert (await read_all(stream)).endswith(b"hi")


async def test_one_that_never_ends_is_not_waited_for(autojump_clock: MockClock) -> None:
    async with open_mesh(hi, HttpLimits(drain_timeout=2)) as mesh:
        stream = mesh.open_stream()
        await stream.send_all(POST)
        assert (await read_all(stream)).endswith(b"hi")
        await trio.sleep(3)
        assert mesh.serving == 0


async def test_a_caller_that_takes_no_answer_holds_only_its_own_stream(autojump_clock: MockClock) -> None:
    async with open_mesh(hi, window=10) as mesh, trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(mesh.open_stream().send_all, GET)
        await trio.sleep(1)
        stream = mesh.open_stream()
        nursery.start_soon(stream.send_all, GET)
        assert (await read_all(stream)).endswith(b"hi")


async def test_cancelling_the_provider_at_every_await_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stream: MemoryStream | None = None

    async def once() -> None:
        nonlocal stream
        async with open_mesh(echo) as mesh:
            stream = mesh.open_stream()
            await stream.send_all(POST + b"1234")
            try:
                await read_all(stream)
            finally:
                await stream.aclose()

    assert await cancel_at_every_await(once) > 15
    assert caplog.records == []


async def test_trailers_and_early_words_go_both_ways() -> None:
    received: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": INFORMATIONAL, "status": 103, "headers": [(b"link", b"</a>")]})
        await send({"type": "http.response.start", "status": 200, "trailers": True})
        received.append(await receive())
        await send({"type": "http.response.body", "body": b"hi"})
        await send({"type": "http.response.trailers", "headers": [(b"a", b"1")], "more_trailers": True})
        await send({"type": "http.response.trailers", "headers": [(b"b", b"2")]})

    request = GET.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nSum: 3\r\n\r\n")
    async with open_mesh(app) as mesh:
        answer = await ask(mesh, request)
    assert received == [{"type": "http.request", "body": b"x", "more_body": False, TRAILERS: [(b"sum", b"3")]}]
    assert answer.startswith(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"2\r\nhi\r\n0\r\na: 1\r\nb: 2\r\n\r\n")
