"""One exchange over a stream, with applications that behave and applications that do not."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Admission
from agentmesh.errors import LocalProtocolError, StreamResetError
from agentmesh.protocols.http import (
    HTTP_ID,
    ASGIApp,
    CallerLeftError,
    HttpLimits,
    Message,
    Receive,
    Scope,
    Send,
    protocol,
)
from agentmesh.protocols.http.wire import DEFAULT_LIMITS
from agentmesh.testing.cancellation import cancel_at_every_await
from tests.services.mesh import MemoryStream, Mesh, open_mesh

GET = b"GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n"
START: Message = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
BODY: Message = {"type": "http.response.body", "body": b"hi"}


async def hi(scope: Scope, receive: Receive, send: Send) -> None:
    await send(START)
    await send(BODY)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200})
    more = True
    while more:
        message = await receive()
        more = message["more_body"]
        await send({"type": "http.response.body", "body": message["body"], "more_body": more})


async def read_all(stream: MemoryStream) -> bytes:
    data = b""
    while piece := await stream.receive_some():
        data += piece
    return data


async def ask(mesh: Mesh, request: bytes) -> bytes:
    """The whole answer; raises StreamResetError when it is cut."""
    stream = mesh.open_stream()
    await stream.send_all(request)
    answer = await read_all(stream)
    await stream.aclose()
    await mesh.check_idle()
    return answer


@asynccontextmanager
async def asked(app: ASGIApp, request: bytes, limits: HttpLimits = DEFAULT_LIMITS) -> AsyncGenerator[MemoryStream]:
    """A stream with a request on it, served by `app`."""
    async with open_mesh(app, limits) as mesh:
        stream = mesh.open_stream()
        await stream.send_all(request)
        await wait_all_tasks_blocked()
        yield stream


def test_the_protocol() -> None:
    assert (protocol(hi).id, protocol(hi).admission, protocol(hi).run) == (HTTP_ID, Admission.ANYONE, None)


async def test_a_request_and_its_answer() -> None:
    async with open_mesh(hi) as mesh:
        answer = await ask(mesh, GET)
    assert answer == b"HTTP/1.1 200 \r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi"


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


# ── applications ──


async def test_an_application_that_fails_is_answered_500(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError

    async with open_mesh(fail) as mesh:
        assert (await ask(mesh, GET)).startswith(b"HTTP/1.1 500 ")
    failed = next(record for record in caplog.records if record.message == "application failed")
    assert failed.exc_info is not None
    assert vars(failed)["path"] == "/a"


async def test_an_application_that_fails_in_its_answer_cuts_the_stream(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        await send(START)
        await send({**BODY, "body": b"h", "more_body": True})
        raise ZeroDivisionError

    async with asked(fail, GET) as stream:
        with pytest.raises(StreamResetError):
            await read_all(stream)
    assert "application failed" in caplog.messages


async def test_an_application_without_an_answer_is_answered_500(caplog: pytest.LogCaptureFixture) -> None:
    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        pass

    async with open_mesh(silent) as mesh:
        assert (await ask(mesh, GET)).startswith(b"HTTP/1.1 500 ")
    assert "application gave no answer" in caplog.messages


@pytest.mark.parametrize("messages", [[START], [START, {**BODY, "more_body": True}], [START, {**BODY, "body": b"h"}]])
async def test_half_an_answer_never_looks_whole(messages: list[Message]) -> None:
    async def half(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    async with asked(half, GET) as stream:
        with pytest.raises(StreamResetError):
            await read_all(stream)


async def test_messages_out_of_order_are_the_applications_fault() -> None:
    wrong: list[Message] = [BODY, {"type": "websocket.accept"}, {**START, "headers": [(b"a\n", b"")]}]

    async def confused(scope: Scope, receive: Receive, send: Send) -> None:
        for message in wrong:
            with pytest.raises(LocalProtocolError):
                await send(message)
        await send({"type": "http.response.trailers", "headers": []})
        await hi(scope, receive, send)
        with pytest.raises(LocalProtocolError):
            await send(BODY)

    async with open_mesh(confused) as mesh:
        assert (await ask(mesh, GET)).endswith(b"hi")


async def test_work_may_go_on_behind_the_answer(autojump_clock: MockClock) -> None:
    done: list[str] = []

    async def background(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await hi(scope, receive, send)
        done.append((await receive())["type"])
        await trio.sleep(100)
        done.append("slept")

    async with asked(background, GET, HttpLimits(leave_timeout=1)) as stream:
        assert (await read_all(stream)).endswith(b"hi")
        stream.reset()
        await trio.sleep(101)
    assert done == ["http.disconnect", "slept"]


async def test_the_exchange_is_not_over_before_the_answer_has_left() -> None:
    """Whoever stops its work at http.disconnect may do so in the middle of a long last piece, and cuts nothing."""
    heard: list[str] = []

    async def watchful(scope: Scope, receive: Receive, send: Send) -> None:
        async def watch() -> None:
            await receive()
            heard.append((await receive())["type"])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100000")]})
            await send({"type": "http.response.body", "body": bytes(100_000)})

    async with open_mesh(watchful) as mesh:
        stream = mesh.open_stream()
        await stream.send_all(GET)
        await wait_all_tasks_blocked()
        assert heard == []  # most of it waits for the caller
        assert (await read_all(stream)).endswith(b"\r\n\r\n" + bytes(100_000))
        await wait_all_tasks_blocked()
        assert heard == ["http.disconnect"]


async def test_an_application_is_told_when_nobody_takes_the_end_of_its_answer() -> None:
    heard: list[str] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100000")]})
        await send({"type": "http.response.body", "body": bytes(100_000)})
        heard.append((await receive())["type"])

    async with open_mesh(answer) as mesh:
        stream = mesh.open_stream()
        await stream.send_all(GET)
        await wait_all_tasks_blocked()
        stream.reset()
        await mesh.check_idle()
    assert heard == ["http.disconnect"]


async def test_an_answer_that_its_application_gave_up_is_cut_if_nobody_takes_it(autojump_clock: MockClock) -> None:
    async def impatient(scope: Scope, receive: Receive, send: Send) -> None:
        with trio.move_on_after(1):
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100000")]})
            await send({"type": "http.response.body", "body": bytes(100_000)})

    async with open_mesh(impatient) as mesh:
        stream = mesh.open_stream()
        await stream.send_all(GET)
        await trio.sleep(60)
        assert mesh.serving == 0
        with pytest.raises(StreamResetError):
            await read_all(stream)


# ── callers that leave ──


@pytest.mark.parametrize("late", range(6))
async def test_an_application_that_stops_once_the_exchange_is_over_cuts_nothing_short(late: int) -> None:
    """As the MCP SDK's does: it waits for http.disconnect beside its work, and cancels the work when that comes."""

    async def watchful(scope: Scope, receive: Receive, send: Send) -> None:
        async def watch(working: trio.CancelScope) -> None:
            for _ in range(late):  # it comes to its receive while the answer is being sent, at each of the awaits there
                await trio.lowlevel.checkpoint()
            while (await receive())["type"] != "http.disconnect":
                pass
            working.cancel()

        assert not (await receive())["more_body"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, nursery.cancel_scope)
            await send(START)
            await send(BODY)
            nursery.cancel_scope.cancel()

    async with open_mesh(watchful) as mesh:
        for _ in range(10):  # Trio runs the two tasks in either order
            assert (await ask(mesh, GET)).endswith(b"\r\n\r\nhi")


async def test_an_application_is_told_that_its_caller_left() -> None:
    heard: list[str] = []

    async def listen(scope: Scope, receive: Receive, send: Send) -> None:
        heard.extend([(await receive())["type"] for _ in range(3)])
        with pytest.raises(OSError, match="left"):
            await send(START)

    async with open_mesh(listen) as mesh:
        stream = mesh.open_stream()
        await stream.send_all(GET)
        await wait_all_tasks_blocked()
        stream.reset()
        await mesh.check_idle()
    assert heard == ["http.request", "http.disconnect", "http.disconnect"]


async def test_an_application_that_sends_on_learns_that_its_caller_left(caplog: pytest.LogCaptureFixture) -> None:
    raised: list[OSError] = []

    async def pour(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        try:
            while True:
                await send({"type": "http.response.body", "body": bytes(1000), "more_body": True})
        except OSError as exc:
            raised.append(exc)
            raise

    async with open_mesh(pour) as mesh:
        stream = mesh.open_stream()
        await stream.send_all(GET)
        await stream.receive_some()
        await stream.aclose()  # without a reset: the writer meets it
        await mesh.check_idle()
    assert len(raised) == 1
    assert caplog.records == []  # no failure of the application's


async def test_an_application_that_does_not_care_is_cancelled_in_the_end(autojump_clock: MockClock) -> None:
    cancelled: list[float] = []

    async def deaf(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.append(trio.current_time())

    async with open_mesh(deaf, HttpLimits(leave_timeout=7)) as mesh:
        stream = mesh.open_stream()
        await stream.send_all(GET)
        await wait_all_tasks_blocked()
        stream.reset()
        await trio.sleep(8)
        await mesh.check_idle()
    assert cancelled == [pytest.approx(7)]


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
