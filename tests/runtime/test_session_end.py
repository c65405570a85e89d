"""How a session ends: its peer vanishes, one side closes it, somebody breaks the protocol; always in bounded time."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Link
from agentmesh.errors import ErrorCode, RejectedError, SessionClosedError, StreamResetError
from agentmesh.runtime.config import SessionConfig
from agentmesh.runtime.session import MuxSession
from agentmesh.runtime.stream import MuxStream
from agentmesh.runtime.writer import FAREWELL_TIMEOUT
from agentmesh.runtime.yamux import Mux, MuxLimits, PongReceived
from agentmesh.runtime.yamux.frames import FIN, RST, SYN, FrameType, encode_header
from agentmesh.runtime.yamux.limits import INITIAL_WINDOW
from agentmesh.testing.links import Conditions
from tests.runtime.pairs import (
    ANY,
    MB,
    SLOW,
    echo,
    open_against_link,
    open_sessions,
    push,
    receive_exactly,
)

OPENED = encode_header(FrameType.WINDOW_UPDATE, SYN, 2, 0)


# ── the peer vanishes ──


@pytest.mark.parametrize("frozen_at", [0.0, 0.01, 3.0, 14.9, 15.0, 15.05, 29.0])
async def test_a_peer_that_vanished_is_lost_within_three_intervals(autojump_clock: MockClock, frozen_at: float) -> None:
    async with open_sessions(conditions=Conditions(latency=0.1)) as sessions:
        ours, _ = await sessions.opened()
        await trio.sleep(frozen_at)
        sessions.network.freeze("bob")
        start = trio.current_time()
        with pytest.raises(SessionClosedError, match="answered no ping"):
            await ours.receive_some()
        assert trio.current_time() - start <= 3 * sessions.alice.config.ping_interval
        await sessions.alice.ended.wait()
        assert trio.current_time() - start <= 3 * sessions.alice.config.ping_interval + FAREWELL_TIMEOUT


async def test_how_soon_a_peer_is_lost_is_set_by_the_ping_interval(autojump_clock: MockClock) -> None:
    async with open_sessions(alices=SessionConfig(ping_interval=2.0)) as sessions:
        sessions.network.block("alice", "bob")
        with trio.fail_after(6):
            await sessions.alice.ended.wait()
        assert sessions.bob.is_open


async def test_a_peer_that_is_busy_talking_is_not_lost(autojump_clock: MockClock) -> None:
    """It never answers a ping, but it says something."""
    async with open_against_link() as (alice, bob):
        for _ in range(20):
            await trio.sleep(20)
            await bob.send_all(encode_header(FrameType.WINDOW_UPDATE, 0, 9, 0))
        assert alice.is_open
        assert alice.statistics().rtt is None


async def test_a_pause_is_no_loss(autojump_clock: MockClock) -> None:
    async with open_sessions(serve=echo) as sessions:
        sessions.network.freeze("bob")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_expect_echo, sessions.alice, bytes(MB))
            await trio.sleep(20)
            sessions.network.thaw("bob")
        assert sessions.alice.is_open


async def _expect_echo(session: MuxSession, data: bytes) -> None:
    stream = await session.open_stream(ANY)
    async with stream, trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, data)
        assert await receive_exactly(stream, len(data)) == data


async def test_a_broken_link_ends_the_session_on_both_sides() -> None:
    async with open_sessions() as sessions:
        ours, theirs = await sessions.opened()
        sessions.network.reset("alice", "bob")
        for stream in (ours, theirs):
            with pytest.raises(SessionClosedError):
                await stream.receive_some()
        await sessions.alice.ended.wait()
        await sessions.bob.ended.wait()


async def test_a_link_that_breaks_while_it_is_written_to(autojump_clock: MockClock) -> None:
    async with open_sessions(conditions=SLOW) as sessions, trio.open_nursery() as nursery:
        ours, _ = await sessions.opened()
        nursery.start_soon(push, ours)
        await trio.sleep(0.1)
        sessions.network.reset("alice", "bob")
        await sessions.alice.ended.wait()


# ── draining and closing ──


async def test_a_draining_session_takes_no_new_streams_and_keeps_the_old() -> None:
    async with open_sessions() as sessions:
        ours, theirs = await sessions.opened()
        sessions.alice.drain()
        sessions.alice.drain()
        assert not sessions.alice.accepts_streams
        assert sessions.alice.statistics().state == "draining"
        with pytest.raises(RejectedError) as caught:
            await sessions.alice.open_stream(ANY)
        assert caught.value.code == ErrorCode.SHUTDOWN
        refused = await sessions.bob.open_stream(ANY)
        with pytest.raises(RejectedError) as caught:
            await refused.receive_some()
        assert caught.value.code == ErrorCode.SHUTDOWN
        await ours.send_all(b"on")
        assert await receive_exactly(theirs, 2) == b"on"
        assert sessions.bob.accepts_streams


async def test_a_go_away_makes_a_session_drain() -> None:
    async with open_sessions() as sessions:
        ours, theirs = await sessions.opened()
        for _ in range(2):
            sessions.bob.mux.go_away()
            sessions.bob.writer.wake()
            await wait_all_tasks_blocked()
            assert not sessions.alice.accepts_streams
            with pytest.raises(RejectedError):
                await sessions.alice.open_stream(ANY)
        await ours.send_all(b"on")
        assert await receive_exactly(theirs, 2) == b"on"


async def test_closing_sends_what_is_queued_and_the_go_away_behind_it() -> None:
    config = SessionConfig(write_bytes=1000)
    async with open_against_link(config, max_bytes=4096) as (alice, bob), trio.open_nursery() as nursery:
        for _ in range(20):
            stream = await alice.open_stream(ANY)
            await stream.send_all(bytes(1000) + b"last words")
        nursery.start_soon(alice.aclose)
        await wait_all_tasks_blocked()  # the link takes no more
        wire = await _everything(bob)
        assert wire.count(b"last words") == 20
        assert wire.endswith(encode_header(FrameType.GO_AWAY, 0, 0, 0))


async def _everything(link: Link) -> bytes:
    wire = bytearray()
    while data := await link.receive_some():
        wire += data
    return bytes(wire)


async def test_closing_takes_as_long_as_the_peer_needs_to_take_the_rest(autojump_clock: MockClock) -> None:
    size = 1000 * 1000
    async with open_sessions(conditions=SLOW) as sessions, trio.open_nursery() as nursery:
        ours, theirs = await sessions.opened()
        received = 0

        async def receive() -> None:
            nonlocal received
            while data := await theirs.receive_some():
                received += len(data)

        nursery.start_soon(receive)
        await ours.send_all(bytes(size))
        await ours.aclose()
        start = trio.current_time()
        await sessions.alice.aclose()
        assert trio.current_time() - start < sessions.alice.config.close_timeout
        await sessions.bob.ended.wait()
    assert received == size


async def test_closing_an_idle_session_takes_no_time_and_the_peer_hears_it(autojump_clock: MockClock) -> None:
    async with open_sessions() as sessions:
        ours, theirs = await sessions.opened()
        start = trio.current_time()
        await sessions.alice.aclose()
        assert trio.current_time() == start
        with pytest.raises(SessionClosedError, match="closed by us"):
            await ours.receive_some()
        with pytest.raises(SessionClosedError, match="the peer closed the link"):
            await theirs.receive_some()
        with pytest.raises(SessionClosedError):
            await sessions.alice.open_stream(ANY)
        await sessions.alice.aclose()
        assert trio.current_time() == start


async def test_two_that_close_it_at_once_both_see_its_end(autojump_clock: MockClock) -> None:
    async with open_sessions() as sessions, trio.open_nursery() as nursery:
        start = trio.current_time()
        nursery.start_soon(sessions.alice.aclose)
        nursery.start_soon(sessions.alice.aclose)
        nursery.start_soon(sessions.bob.aclose)
    assert trio.current_time() == start


@pytest.mark.parametrize("close_timeout", [0.5, 2.0])
async def test_closing_is_bounded_though_the_peer_does_not_read(
    autojump_clock: MockClock, close_timeout: float
) -> None:
    config = SessionConfig(close_timeout=close_timeout)
    async with open_sessions(alices=config) as sessions, trio.open_nursery() as nursery:
        sessions.network.freeze("bob")
        for _ in range(4):
            stream = await sessions.alice.open_stream(ANY)
            nursery.start_soon(push, stream)
        await trio.sleep(1)
        start = trio.current_time()
        await sessions.alice.aclose()
        assert close_timeout <= trio.current_time() - start <= close_timeout + FAREWELL_TIMEOUT


async def test_closing_is_bounded_though_the_peer_gives_no_credit(autojump_clock: MockClock) -> None:
    async with open_sessions() as sessions:
        ours, _ = await sessions.opened()
        with trio.move_on_after(1):
            await ours.send_all(bytes(2 * INITIAL_WINDOW))
        start = trio.current_time()
        await sessions.alice.aclose()
        assert trio.current_time() - start == pytest.approx(sessions.alice.config.close_timeout)


async def test_a_session_that_ends_while_it_is_being_closed(autojump_clock: MockClock) -> None:
    async with open_sessions() as sessions, trio.open_nursery() as nursery:
        ours, _ = await sessions.opened()
        with trio.move_on_after(1):
            await ours.send_all(bytes(2 * INITIAL_WINDOW))
        start = trio.current_time()
        nursery.start_soon(sessions.alice.aclose)
        await trio.sleep(0.5)
        sessions.network.reset("alice", "bob")
        await sessions.alice.ended.wait()
        assert trio.current_time() - start == pytest.approx(0.5)


async def test_a_cancelled_run_ends_the_session_for_everyone_who_waits(autojump_clock: MockClock) -> None:
    async with open_sessions() as sessions:
        ours, _ = await sessions.opened()
    assert not sessions.alice.is_open
    assert sessions.alice.ended.is_set()
    assert sessions.bob.ended.is_set()
    await sessions.alice.aclose()
    with pytest.raises(SessionClosedError, match="cancelled"):
        await ours.receive_some()


async def test_a_cancelled_run_says_goodbye_for_no_more_than_a_moment(autojump_clock: MockClock) -> None:
    async with open_sessions() as sessions:
        sessions.network.freeze("bob")
        stream = await sessions.alice.open_stream(ANY)
        with trio.move_on_after(1):
            await stream.send_all(bytes(INITIAL_WINDOW))
        start = trio.current_time()
    assert trio.current_time() - start <= 2 * FAREWELL_TIMEOUT


async def test_a_stream_that_its_peer_never_ends_is_reset_in_time(autojump_clock: MockClock) -> None:
    config = SessionConfig(mux=MuxLimits(linger_timeout=40.0))
    async with open_sessions(bobs=config) as sessions:
        ours, theirs = await sessions.opened()
        await theirs.aclose()
        assert await ours.receive_some() == b""
        start = trio.current_time()
        with pytest.raises(StreamResetError, match="GARBAGE_COLLECTED"):
            await push_slowly(ours)
        assert 40 <= trio.current_time() - start <= 40 + config.ping_interval
        assert sessions.bob.mux.statistics().lingering_streams == 0


async def push_slowly(stream: MuxStream) -> None:
    """Look every second whether the stream can still be written to."""
    while True:
        await stream.wait_send_all_might_not_block()
        await trio.sleep(1)


async def test_the_peer_may_reset_what_we_have_closed() -> None:
    async with open_sessions() as sessions:
        ours, theirs = await sessions.opened()
        await ours.aclose()
        theirs.reset()
        await wait_all_tasks_blocked()
        assert sessions.sizes == (0,) * 8


# ── a peer that breaks the protocol ──


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "not a yamux frame"),
        (encode_header(FrameType.WINDOW_UPDATE, SYN, 1, 0), "cannot be opened"),
        (encode_header(FrameType.DATA, SYN, 2, INITIAL_WINDOW + 1), "beyond its window"),
        (OPENED + encode_header(FrameType.WINDOW_UPDATE, 0, 2, 2**32 - 1), "overflows"),
    ],
)
async def test_malformed_frames_end_the_session_with_a_go_away_and_a_reason(frames: bytes, reason: str) -> None:
    async with open_against_link() as (alice, bob):
        stream = await alice.open_stream(ANY)
        await stream.send_all(b"hello")
        await bob.send_all(frames)
        with pytest.raises(SessionClosedError, match=reason):
            await stream.receive_some()
        assert encode_header(FrameType.GO_AWAY, 0, 0, 1) in await _everything(bob)
        await alice.ended.wait()


async def test_frames_may_come_with_the_end_of_the_negotiation() -> None:
    ping = encode_header(FrameType.PING, SYN, 0, 77)
    async with open_against_link(early=ping) as (_, bob):
        mux, pongs = Mux(dialer=False), list[PongReceived]()
        while not pongs:
            events = mux.receive_data(bytes(await bob.receive_some()))
            pongs += [event for event in events if isinstance(event, PongReceived)]
        assert pongs == [PongReceived(77)]


async def test_a_peer_that_opens_and_ends_streams_without_waiting_gains_nothing() -> None:
    """Each is reset before its protocol is named, under one number or many."""
    reset = encode_header(FrameType.WINDOW_UPDATE, RST, 2, 0)
    half = OPENED + encode_header(FrameType.WINDOW_UPDATE, FIN, 2, 0) + reset
    async with open_against_link() as (alice, bob):
        await bob.send_all(half * 500)
        await bob.send_all((OPENED + reset) * 500 + OPENED)
        await wait_all_tasks_blocked()
        assert alice.is_open
        assert alice.mux.statistics().inbound_streams == 1
        assert alice.statistics().streams == 1


async def test_a_link_that_ends_without_goodbye_ends_the_session() -> None:
    async with open_against_link() as (alice, bob):
        await bob.aclose()
        await alice.ended.wait()
        with pytest.raises(SessionClosedError, match=r"the peer closed the link|is gone"):
            await alice.open_stream(ANY)
