"""A session: many streams over one link, none in another's way, and an end in bounded time however it comes."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.errors import ErrorCode, RejectedError
from agentmesh.runtime.config import SessionConfig
from agentmesh.runtime.session import MuxSession
from agentmesh.runtime.yamux import MuxLimits
from agentmesh.testing.links import Conditions
from tests.runtime.pairs import (
    ANY,
    MB,
    SLOW,
    Sessions,
    echo,
    open_sessions,
    push,
    receive_everything,
    receive_exactly,
)


async def ask(session: MuxSession, question: bytes) -> bytes:
    stream = await session.open_stream(ANY)
    async with stream:
        await stream.send_all(question)
        await stream.send_eof()
        return await receive_everything(stream)


# ── many streams ──


async def test_ten_thousand_short_streams_leave_every_map_as_it_was() -> None:
    async def many(session: MuxSession, count: int) -> None:
        for number in range(count):
            question = number.to_bytes(4)
            assert await ask(session, question) == question

    async with open_sessions(serve=echo) as sessions:
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(many, sessions.alice, 200)
        await wait_all_tasks_blocked()
        assert sessions.sizes == (0,) * 8


async def test_two_thousand_streams_at_once() -> None:
    async with open_sessions(serve=echo) as sessions:
        streams = [await sessions.alice.open_stream(ANY) for _ in range(2000)]
        for number, stream in enumerate(streams):
            await stream.send_all(number.to_bytes(4))
        await wait_all_tasks_blocked()
        assert sessions.alice.statistics().streams == sessions.bob.statistics().streams == 2000
        for number, stream in enumerate(streams):
            assert await receive_exactly(stream, 4) == number.to_bytes(4)
        for stream in streams:
            await stream.aclose()
        await wait_all_tasks_blocked()
        assert sessions.sizes == (0,) * 8


async def test_one_more_than_the_peer_allows_is_rejected_and_the_others_go_on() -> None:
    async with open_sessions(serve=echo, bobs=SessionConfig(mux=MuxLimits(max_inbound_streams=2))) as sessions:
        streams = [await sessions.alice.open_stream(ANY) for _ in range(3)]
        for stream in streams:
            await stream.send_all(b"hello")
        with pytest.raises(RejectedError) as caught:
            await streams[2].receive_some()
        assert caught.value.code == ErrorCode.RESOURCE_LIMIT_EXCEEDED
        for stream in streams[:2]:
            assert await receive_exactly(stream, 5) == b"hello"


# ── none in another's way ──


async def transfer(sessions: Sessions, size: int) -> float:
    """Send `size` bytes to a reader. Returns how long it took until the last was read."""
    ours, theirs = await sessions.opened()
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.send_all, bytes(size))
        await receive_exactly(theirs, size)
    await ours.aclose()
    await theirs.aclose()
    return trio.current_time() - start


async def test_a_stalled_receiver_slows_neither_another_stream_nor_the_ping(autojump_clock: MockClock) -> None:
    async with open_sessions(conditions=SLOW) as sessions, trio.open_nursery() as nursery:
        alone = await transfer(sessions, 2 * MB)
        await trio.sleep(20)
        idle_rtt = sessions.alice.statistics().rtt
        stalled, _ = await sessions.opened()
        nursery.start_soon(push, stalled)
        await trio.sleep(20)
        assert await transfer(sessions, 2 * MB) == pytest.approx(alone, rel=0.02)
        await trio.sleep(20)
        assert sessions.alice.statistics().rtt == pytest.approx(idle_rtt, rel=0.02)
        nursery.cancel_scope.cancel()


async def test_a_small_call_waits_for_one_write_of_a_bulk_stream_and_no_more(autojump_clock: MockClock) -> None:
    config = SessionConfig(write_bytes=64 * 1024)
    async with open_sessions(conditions=SLOW, alices=config) as sessions, trio.open_nursery() as nursery:
        bulk, sink = await sessions.opened()
        nursery.start_soon(push, bulk)
        nursery.start_soon(receive_everything, sink)
        await trio.sleep(10)
        in_the_way = (
            3 * 64 * 1024 / MB
        )  # one write in the link's hands, one being written, one frame of the bulk stream
        assert await transfer(sessions, 100) <= SLOW.latency + in_the_way
        nursery.cancel_scope.cancel()


async def test_two_bulk_streams_share_the_link_evenly(autojump_clock: MockClock) -> None:
    async with open_sessions(conditions=SLOW) as sessions, trio.open_nursery() as nursery:
        took: list[float] = []

        async def one() -> None:
            took.append(await transfer(sessions, 4 * MB))

        async with trio.open_nursery() as both:
            both.start_soon(one)
            both.start_soon(one)
        assert took[0] == pytest.approx(took[1], rel=0.05)
        nursery.cancel_scope.cancel()


async def test_both_sides_pushing_into_nothing_block_only_themselves(autojump_clock: MockClock) -> None:
    async with open_sessions(conditions=SLOW, serve=None) as sessions, trio.open_nursery() as nursery:
        for _ in range(20):
            for one in await sessions.opened():
                nursery.start_soon(push, one)
        await trio.sleep(30)
        assert sessions.alice.is_open
        assert sessions.bob.is_open
        assert await transfer(sessions, 100) <= 0.1
        nursery.cancel_scope.cancel()


async def test_both_sides_pushing_at_readers_finish(autojump_clock: MockClock) -> None:
    async with open_sessions(conditions=SLOW) as sessions, trio.open_nursery() as nursery:
        for _ in range(5):
            ours, theirs = await sessions.opened()
            for one, other in ((ours, theirs), (theirs, ours)):
                nursery.start_soon(one.send_all, bytes(MB))
                nursery.start_soon(receive_exactly, other, MB)


async def test_a_window_grows_to_the_path(autojump_clock: MockClock) -> None:
    path = Conditions(latency=0.05, bandwidth=100 * MB)
    async with open_sessions(conditions=path) as sessions, trio.open_nursery() as nursery:
        ours, theirs = await sessions.opened()
        nursery.start_soon(push, ours)
        received = 0
        with trio.move_on_after(2.5):
            while True:
                received += len(await theirs.receive_some())
        ramped_up_at, before = trio.current_time(), received
        with trio.move_on_after(1):
            while True:
                received += len(await theirs.receive_some())
        rate = (received - before) / (trio.current_time() - ramped_up_at)
        assert rate >= 0.98 * path.bandwidth
        nursery.cancel_scope.cancel()


async def test_a_sender_leaves_no_more_queued_than_it_may(autojump_clock: MockClock) -> None:
    config = SessionConfig(send_buffer_bytes=1000)
    async with open_sessions(conditions=SLOW, alices=config) as sessions:
        ours, _ = await sessions.opened()
        assert ours.channel is not None
        with trio.move_on_after(10):
            while True:
                await ours.send_all(bytes(1000))
                assert ours.channel.queued <= 1000
        assert 1000 < ours.channel.queued <= 2000  # the last send waits for credit


@pytest.mark.parametrize(("write_bytes", "writes"), [(1 << 18, 1), (1, 100)])
async def test_the_writer_joins_what_is_queued(write_bytes: int, writes: int) -> None:
    async with open_sessions(alices=SessionConfig(write_bytes=write_bytes)) as sessions:
        streams = [(await sessions.opened())[0] for _ in range(100)]
        await wait_all_tasks_blocked()
        before = len(sessions.network.trace)
        async with trio.open_nursery() as nursery:
            for stream in streams:
                nursery.start_soon(stream.send_all, b"x")
        await wait_all_tasks_blocked()
        sent = [entry for entry in sessions.network.trace[before:] if (entry.what, entry.source) == ("send", "alice")]
        assert len(sent) == pytest.approx(writes, abs=1)


# ── what it tells of itself ──


async def test_statistics(autojump_clock: MockClock) -> None:
    async with open_sessions(conditions=Conditions(latency=0.1)) as sessions:
        await trio.sleep(1)
        ours, theirs = await sessions.opened()
        before, theirs_before = sessions.alice.statistics(), sessions.bob.statistics()
        assert before.state == "open"
        assert before.streams == len(sessions.alice.streams) == 1
        assert before.rtt == pytest.approx(0.2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.send_all, bytes(MB))
            await receive_exactly(theirs, MB)
        after, theirs_after = sessions.alice.statistics(), sessions.bob.statistics()
        assert MB <= after.bytes_sent - before.bytes_sent <= 1.01 * MB
        assert after.bytes_sent - before.bytes_sent == theirs_after.bytes_received - theirs_before.bytes_received
        await sessions.alice.aclose()
        assert sessions.alice.statistics().state == "closed"
        assert not sessions.alice.streams
