"""Applications that fail, stay silent, speak out of turn, or go on behind their answer."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.errors import LocalProtocolError, StreamResetError
from agentmesh.protocols.http import (
    HttpLimits,
    Message,
    Receive,
    Scope,
    Send,
)
from tests.protocols.http.exchanges import BODY, GET, START, ask, asked, hi, read_all
from tests.services.mesh import open_mesh


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
