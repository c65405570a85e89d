"""Sending without an await, over what can do it and over what cannot."""

import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.runtime.config import SessionConfig
from agentmesh.runtime.nowait import nowait_sender
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
