"""How a stream ends: reset, closed, cancelled, or with its session."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.errors import ErrorCode, RejectedError, SessionClosedError, StreamResetError
from agentmesh.runtime.stream import MuxStream
from tests.runtime.pairs import ANY, MB, open_sessions, receive_everything, receive_exactly


async def raises_broken(operation: Callable[..., Awaitable[object]], *args: object) -> None:
    with pytest.raises(trio.BrokenResourceError):
        await operation(*args)


# ── resets ──


@pytest.mark.parametrize(
    ("code", "kind", "name"),
    [
        (ErrorCode.GATED, RejectedError, "GATED"),
        (ErrorCode.RATE_LIMITED, RejectedError, "RATE_LIMITED"),
        (ErrorCode.RESOURCE_LIMIT_EXCEEDED, RejectedError, "RESOURCE_LIMIT_EXCEEDED"),
        (ErrorCode.SHUTDOWN, RejectedError, "SHUTDOWN"),
        (ErrorCode.PROTOCOL_VIOLATION, StreamResetError, "PROTOCOL_VIOLATION"),
        (ErrorCode.NO_ERROR, StreamResetError, "NO_ERROR"),
        (0xABCDEF, StreamResetError, "0xabcdef"),
    ],
)
async def test_a_reset_in_the_place_of_an_answer(code: int, kind: type[StreamResetError], name: str) -> None:
    async with open_sessions() as sessions:
        ours, theirs = await sessions.opened()
        theirs.reset(code)
        with pytest.raises(StreamResetError, match=name) as caught:
            await ours.receive_some()
        assert type(caught.value) is kind
        assert caught.value.code == code
        with pytest.raises(kind):
            await ours.send_all(b"x")
        with pytest.raises(kind):
            await ours.send_eof()
        with pytest.raises(trio.ClosedResourceError):
            await theirs.receive_some()


@pytest.mark.parametrize("together", [True, False])
async def test_a_reset_behind_an_answer_is_no_refusal(together: bool) -> None:
    async with open_sessions() as sessions:
        ours, theirs = await sessions.opened()
        if not together:
            assert theirs.channel is not None
            await theirs.send_all(b"")  # what was agreed, alone
            await wait_all_tasks_blocked()
        await theirs.send_all(b"answer")
        assert await ours.receive_some() == b"answer"
        theirs.reset(ErrorCode.RESOURCE_LIMIT_EXCEEDED)
        with pytest.raises(StreamResetError) as caught:
            await ours.receive_some()
        assert type(caught.value) is StreamResetError
        assert caught.value.code == ErrorCode.RESOURCE_LIMIT_EXCEEDED


async def test_whoever_waits_for_the_break_hears_of_a_reset_beside_a_sender_and_a_receiver() -> None:
    heard: list[trio.BrokenResourceError] = []

    async def watch(stream: MuxStream) -> None:
        heard.append(await stream.wait_broken())

    async with open_sessions() as sessions:
        ours, theirs = await sessions.opened()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, ours)
            nursery.start_soon(watch, ours)
            nursery.start_soon(raises_broken, ours.send_all, bytes(MB))
            nursery.start_soon(raises_broken, ours.receive_some)
            await wait_all_tasks_blocked()
            assert heard == []
            theirs.reset(ErrorCode.SUPPLANTED)
        assert [type(error) for error in heard] == [StreamResetError] * 2
        assert {(error.code, error.finished) for error in heard if isinstance(error, StreamResetError)} == {
            (ErrorCode.SUPPLANTED, False)
        }
        assert isinstance(await ours.wait_broken(), StreamResetError)  # at once, as it is broken already


async def test_a_reset_behind_the_end_leaves_what_came_to_be_read() -> None:
    async with open_sessions() as sessions:
        ours, theirs = await sessions.opened()
        await theirs.send_all(b"all there is")
        await theirs.send_eof()
        await wait_all_tasks_blocked()  # until they have left: a reset drops what is queued
        theirs.reset()
        error = await ours.wait_broken()
        assert isinstance(error, StreamResetError)
        assert error.finished
        assert await receive_everything(ours) == b"all there is"


async def test_the_end_of_the_session_is_a_break() -> None:
    async with open_sessions() as sessions, trio.open_nursery() as nursery:
        ours, _ = await sessions.opened()
        unopened = await sessions.alice.open_stream(ANY)
        nursery.start_soon(sessions.bob.aclose)
        for stream in (ours, unopened):
            assert isinstance(await stream.wait_broken(), SessionClosedError)


@pytest.mark.parametrize("first", [True, False])
async def test_waiting_for_the_break_of_a_stream_that_we_close(first: bool) -> None:
    async with open_sessions() as sessions, trio.open_nursery() as nursery:
        ours, _ = await sessions.opened()
        if first:
            await ours.aclose()
        with pytest.raises(trio.ClosedResourceError):
            if not first:
                nursery.start_soon(ours.aclose)
            await ours.wait_broken()


async def test_a_reset_frees_a_sender_that_waits() -> None:
    async with open_sessions() as sessions, trio.open_nursery() as nursery:
        ours, theirs = await sessions.opened()

        async def send() -> None:
            with pytest.raises(StreamResetError):
                await ours.send_all(bytes(1 << 20))

        nursery.start_soon(send)
        await wait_all_tasks_blocked()
        theirs.reset(ErrorCode.PROTOCOL_VIOLATION)
        theirs.reset(ErrorCode.GATED)  # the first word holds
    assert ours.channel is not None
    assert ours.channel.reset_code == ErrorCode.PROTOCOL_VIOLATION


# ── how it ends ──


async def test_closing_delivers_what_was_sent() -> None:
    async with open_sessions() as sessions:
        ours, theirs = await sessions.opened()
        data = bytes(range(256)) * 1200  # more than a window
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                await ours.send_all(data)
                await ours.aclose()

            nursery.start_soon(send)
            assert await receive_everything(theirs) == data
        await theirs.aclose()
        await wait_all_tasks_blocked()
        assert sessions.sizes == (0,) * 8


async def test_an_answer_can_be_read_to_its_end_though_its_sender_did_not_read_the_question() -> None:
    async with open_sessions() as sessions:
        ours, theirs = await sessions.opened()
        await ours.send_all(b"question")
        await wait_all_tasks_blocked()
        await theirs.send_all(b"answer")
        await theirs.aclose()
        await wait_all_tasks_blocked()
        assert await receive_everything(ours) == b"answer"
        assert await ours.receive_some() == b""
        with pytest.raises(StreamResetError):
            await ours.send_all(b"more")


async def test_closing_an_inbound_stream_that_said_nothing_agrees_to_its_protocol_all_the_same() -> None:
    async with open_sessions() as sessions:
        ours, theirs = await sessions.opened()
        await theirs.aclose()
        assert await ours.receive_some() == b""


async def test_a_close_that_is_cancelled_resets() -> None:
    async with open_sessions() as sessions:
        ours, theirs = await sessions.opened()
        with trio.CancelScope() as scope:
            scope.cancel()
            await ours.aclose()
        assert scope.cancelled_caught
        with pytest.raises(StreamResetError):
            await theirs.receive_some()
        await theirs.aclose()
        assert sessions.sizes == (0,) * 8


async def test_a_receive_that_is_cancelled_loses_nothing() -> None:
    async with open_sessions() as sessions:
        ours, theirs = await sessions.opened()
        for number in range(20):
            with trio.CancelScope() as scope:
                scope.cancel()
                await theirs.receive_some()
            assert scope.cancelled_caught
            await ours.send_all(bytes((number,)))
        await ours.send_eof()
        assert await receive_everything(theirs) == bytes(range(20))


async def test_one_task_at_a_time() -> None:
    async with open_sessions() as sessions, trio.open_nursery() as nursery:
        ours, theirs = await sessions.opened()
        nursery.start_soon(ours.send_all, bytes(1 << 20))
        nursery.start_soon(ours.receive_some)
        await wait_all_tasks_blocked()
        for send in (ours.send_all(b"x"), ours.send_eof(), ours.wait_send_all_might_not_block()):
            with pytest.raises(trio.BusyResourceError, match="sending"):
                await send
        with pytest.raises(trio.BusyResourceError, match="receiving"):
            await ours.receive_some()
        await theirs.send_all(b"x")
        assert len(await receive_exactly(theirs, 1 << 20)) == 1 << 20


@pytest.mark.parametrize("whose", ["alice", "bob"])
async def test_a_session_that_ends_takes_its_streams_along(whose: str) -> None:
    async with open_sessions() as sessions:
        (ours, theirs), (idle, _), (full, _) = [await sessions.opened() for _ in range(3)]
        unused = await sessions.alice.open_stream(ANY)
        async with trio.open_nursery() as nursery:
            for act in (ours.receive_some(), theirs.receive_some(100), full.send_all(bytes(1 << 20))):
                nursery.start_soon(_expect_session_closed, act)
            await wait_all_tasks_blocked()
            {"alice": sessions.alice, "bob": sessions.bob}[whose].abort("enough")
        await sessions.alice.ended.wait()
        for act in (idle.receive_some(), idle.send_all(b"x"), idle.send_eof(), unused.send_all(b"x")):
            await _expect_session_closed(act)
        await _expect_session_closed(unused.receive_some())
        idle.reset()
        await ours.aclose()
        assert sessions.alice.statistics().streams == 0


async def _expect_session_closed(act: Awaitable[object]) -> None:
    with pytest.raises(SessionClosedError):
        await act


async def test_what_came_before_the_session_ended_can_still_be_read() -> None:
    async with open_sessions() as sessions:
        ours, theirs = await sessions.opened()
        await ours.send_all(b"last")
        await ours.send_eof()
        await wait_all_tasks_blocked()
        sessions.bob.abort("enough")
        await sessions.bob.ended.wait()
        assert await receive_everything(theirs) == b"last"
