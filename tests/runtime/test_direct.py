"""Sending without an await and receiving into a buffer, over what can do it and over what cannot."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.runtime.config import SessionConfig
from agentmesh.runtime.direct import buffer_receiver, nowait_sender
from tests.runtime.pairs import SLOW, open_sessions, receive_exactly
from tests.runtime.wires import duplex, socket_streams

LONG = bytes(16 * 1024 * 1024)


async def test_a_socket_takes_what_it_has_room_for() -> None:
    async with socket_streams() as (ours, theirs):
        send = nowait_sender(ours)
        assert send(b"hello") == 5
        assert 0 < send(LONG) < len(LONG)
        while send(LONG):
            pass  # the kernel finds more room as it goes
        assert bytes(await theirs.receive_some(5)) == b"hello"


async def test_a_socket_that_was_closed_takes_nothing() -> None:
    async with socket_streams() as (ours, _):
        await ours.aclose()
        assert nowait_sender(ours)(b"hello") == 0


async def test_what_cannot_takes_nothing() -> None:
    ours, _ = duplex()
    assert nowait_sender(ours)(b"hello") == 0


async def test_a_stream_of_a_session_takes_what_may_stay_queued() -> None:
    config = SessionConfig(send_buffer_bytes=1000, write_bytes=4000)
    async with open_sessions(conditions=SLOW, alices=config) as sessions:
        ours, theirs = await sessions.opened()
        send = nowait_sender(ours)
        assert send(memoryview(b"hello")) == 5
        assert await receive_exactly(theirs, 5) == b"hello"
        taken = 0
        while sent := send(bytes(5000)):
            assert sent == config.write_bytes
            taken += sent
        assert ours.channel is not None
        assert ours.channel.queued > config.send_buffer_bytes
        assert len(await receive_exactly(theirs, taken)) == taken
        assert send(b"more") == 4


async def test_a_stream_takes_nothing_while_another_task_sends_and_after_its_end() -> None:
    async with open_sessions(conditions=SLOW) as sessions, trio.open_nursery() as nursery:
        ours, _ = await sessions.opened()
        nursery.start_soon(ours.send_all, LONG)
        await wait_all_tasks_blocked()
        assert nowait_sender(ours)(b"between") == 0
        nursery.cancel_scope.cancel()
    assert nowait_sender(ours)(b"behind") == 0


async def test_bytes_come_into_a_buffer_as_they_are_there() -> None:
    async with socket_streams() as (ours, theirs), trio.open_nursery() as nursery:
        receive_into = buffer_receiver(theirs)
        assert receive_into is not None
        buffer = memoryview(bytearray(8))
        await ours.send_all(b"0123456789")
        assert await receive_into(buffer) == 8
        assert bytes(buffer) == b"01234567"
        assert await receive_into(buffer) == 2
        nursery.start_soon(ours.send_eof)
        assert await receive_into(buffer) == 0


async def test_a_close_ends_the_waiting() -> None:
    async with socket_streams() as (_, theirs):
        receive_into = buffer_receiver(theirs)
        assert receive_into is not None
        buffer = memoryview(bytearray(8))
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(trio.ClosedResourceError):
                    await receive_into(buffer)

            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            await theirs.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await receive_into(buffer)


async def test_a_broken_connection_says_so() -> None:
    async with socket_streams() as (ours, theirs):
        receive_into = buffer_receiver(ours)
        assert receive_into is not None
        await ours.send_all(b"unread")
        await wait_all_tasks_blocked()
        await theirs.aclose()  # with bytes unread: a reset
        with pytest.raises(trio.BrokenResourceError):
            await receive_into(memoryview(bytearray(8)))


async def test_what_cannot_has_no_receiver() -> None:
    ours, _ = duplex()
    assert buffer_receiver(ours) is None
