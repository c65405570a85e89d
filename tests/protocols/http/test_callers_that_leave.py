"""What an application learns of a caller that left, and how long it may not care."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.protocols.http import (
    HttpLimits,
    Receive,
    Scope,
    Send,
)
from tests.protocols.http.exchanges import BODY, GET, POST, START, ask
from tests.services.mesh import open_mesh


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


async def test_a_caller_that_leaves_is_noticed_while_nobody_reads_or_sends(autojump_clock: MockClock) -> None:
    """The application takes nothing, so that its reader waits for room and would not hear of the reset."""
    cancelled = trio.Event()

    async def deaf(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    async with open_mesh(deaf, HttpLimits(max_unread_bytes=1000, leave_timeout=7), window=1000) as mesh:
        stream = mesh.open_stream()
        with trio.move_on_after(1):
            await stream.send_all(POST.replace(b"4", b"10000") + bytes(10_000))
        stream.reset()
        with trio.fail_after(10):
            await cancelled.wait()
        await mesh.check_idle()


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
