"""One stream of a session is a Trio stream: its contract, what it costs to open, and every way it ends."""

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock, check_half_closeable_stream, wait_all_tasks_blocked

from agentmesh.abc import Direction
from agentmesh.errors import ErrorCode, RejectedError, RemoteProtocolError, StreamResetError
from agentmesh.runtime.config import SessionConfig
from agentmesh.runtime.multistream import GREETING, Responder, encode_message
from agentmesh.runtime.naming import wait_name
from agentmesh.runtime.stream import MuxStream
from agentmesh.runtime.yamux import MuxLimits
from agentmesh.runtime.yamux.limits import INITIAL_WINDOW
from agentmesh.testing.links import Conditions
from agentmesh.types import ProtocolId
from tests.runtime.pairs import ALICE, ANY, BOB, open_sessions, receive_everything, receive_exactly

PROPOSAL = GREETING + encode_message(ANY)
UNKNOWN = ProtocolId("/test/unknown")


async def test_it_keeps_trios_contract() -> None:
    async with open_sessions() as sessions:

        async def clogged() -> tuple[MuxStream, MuxStream]:
            ours, theirs = await sessions.opened()
            for one in (ours, theirs):
                with trio.move_on_after(0.1) as scope:
                    await one.send_all(bytes(INITIAL_WINDOW + sessions.alice.config.send_buffer_bytes + 1))
                assert scope.cancelled_caught
            return ours, theirs

        await check_half_closeable_stream(sessions.opened, clogged)


async def test_who_and_what_it_is() -> None:
    async with open_sessions() as sessions:
        ours, theirs = await sessions.opened()
        assert (ours.peer, ours.direction, ours.session) == (BOB.peer, Direction.OUTBOUND, sessions.alice)
        assert (theirs.peer, theirs.direction, theirs.session) == (ALICE.peer, Direction.INBOUND, sessions.bob)
        assert ours.protocol == theirs.protocol == ANY
        assert ANY in repr(ours)


# ── opening ──


async def test_the_protocols_name_and_the_first_bytes_leave_in_one_segment() -> None:
    async def serve(stream: MuxStream) -> None:
        segments.append(await stream.receive_some())

    segments: list[bytes] = []
    async with open_sessions(serve=serve) as sessions:
        stream = await sessions.alice.open_stream(ANY)
        await stream.send_all(b"hello")
        await wait_all_tasks_blocked()
        assert segments == [PROPOSAL + b"hello"]


async def test_the_answer_and_the_first_bytes_come_in_one_segment_and_after_one_round_trip(
    autojump_clock: MockClock,
) -> None:
    async def serve(stream: MuxStream) -> None:
        await wait_name(stream, Responder(bool))
        assert await stream.receive_some() == b"question"
        await stream.send_all(b"answer")

    async with open_sessions(conditions=Conditions(latency=0.1), serve=serve) as sessions:
        await trio.sleep(1)
        stream = await sessions.alice.open_stream(ANY)
        start = trio.current_time()
        await stream.send_all(b"question")
        assert await stream.receive_some() == b"answer"
        assert trio.current_time() - start == pytest.approx(0.2)


async def test_whoever_speaks_first_need_not_be_the_one_who_opened() -> None:
    async def serve(stream: MuxStream) -> None:
        await wait_name(stream, Responder(bool))
        await stream.send_all(b"welcome")

    async with open_sessions(serve=serve) as sessions:
        stream = await sessions.alice.open_stream(ANY)
        assert await receive_exactly(stream, 3) == b"wel"
        assert await stream.receive_some() == b"come"


async def test_a_stream_that_was_never_used_was_never_there() -> None:
    async with open_sessions() as sessions:
        for end in (MuxStream.aclose, _reset):
            stream = await sessions.alice.open_stream(ANY)
            await end(stream)
            with pytest.raises(trio.ClosedResourceError):
                await stream.send_all(b"x")
            with pytest.raises(trio.ClosedResourceError):
                await stream.receive_some()
            with pytest.raises(trio.ClosedResourceError):
                await stream.send_eof()
        await wait_all_tasks_blocked()
        assert sessions.sizes == (0,) * 8
        assert sessions.alice.statistics().bytes_sent < 50  # a ping and a pong


async def _reset(stream: MuxStream) -> None:
    stream.reset()


async def test_a_stream_may_be_all_end() -> None:
    async with open_sessions() as sessions:
        ours = await sessions.alice.open_stream(ANY)
        await ours.send_eof()
        await ours.send_eof()
        theirs = await sessions.doormen[1].next()
        assert await theirs.receive_some() == b""
        await theirs.send_all(b"answer")
        await theirs.aclose()
        assert await receive_everything(ours) == b"answer"
        with pytest.raises(trio.ClosedResourceError, match="send_eof"):
            await ours.send_all(b"x")
        await ours.aclose()
        await wait_all_tasks_blocked()
        assert sessions.sizes == (0,) * 8


async def test_our_own_limit_is_told_when_opening_or_at_the_first_use() -> None:
    limits = SessionConfig(mux=MuxLimits(max_outbound_streams=1))
    async with open_sessions(alices=limits) as sessions:
        one, other = await sessions.alice.open_stream(ANY), await sessions.alice.open_stream(ANY)
        await one.send_all(b"hello")
        with pytest.raises(RejectedError) as caught:
            await sessions.alice.open_stream(ANY)
        assert caught.value.code == ErrorCode.RESOURCE_LIMIT_EXCEEDED
        with pytest.raises(RejectedError):
            await other.send_all(b"hello")
        one.reset()
        await other.send_all(b"hello")


# ── refusals ──


async def refuse_unknown(stream: MuxStream) -> None:
    try:
        await wait_name(stream, Responder(ANY.__eq__))
    except (trio.BrokenResourceError, RemoteProtocolError):
        stream.reset(ErrorCode.PROTOCOL_NEGOTIATION_FAILED)


async def test_an_unknown_protocol_is_rejected_and_stays_rejected() -> None:
    async with open_sessions(serve=refuse_unknown) as sessions:
        stream = await sessions.alice.open_stream(UNKNOWN)
        for _ in range(2):
            with pytest.raises(RejectedError) as caught:
                await stream.receive_some()
            assert caught.value.code == ErrorCode.PROTOCOL_NEGOTIATION_FAILED
        with pytest.raises(RejectedError):
            await stream.send_all(b"x")
        await stream.aclose()
        await wait_all_tasks_blocked()
        assert sessions.sizes == (0,) * 8


async def test_a_sender_that_waits_hears_of_the_refusal_too() -> None:
    async with open_sessions(serve=refuse_unknown) as sessions, trio.open_nursery() as nursery:
        stream = await sessions.alice.open_stream(UNKNOWN)

        async def send() -> None:
            with pytest.raises(RejectedError):
                await stream.send_all(bytes(1 << 20))

        nursery.start_soon(send)
        await wait_all_tasks_blocked()
        with pytest.raises(RejectedError):
            await stream.receive_some()


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n", GREETING + encode_message("/another"), b"\xff" * 12]
)
async def test_an_answer_that_is_no_negotiation_breaks_the_stream_only(answer: bytes) -> None:
    async def serve(stream: MuxStream) -> None:
        await stream.receive_some()
        await stream.send_all(answer)
        with pytest.raises(StreamResetError) as caught:
            await stream.receive_some()
        assert caught.value.code == ErrorCode.PROTOCOL_VIOLATION
        await stream.aclose()

    async with open_sessions(serve=serve) as sessions:
        stream = await sessions.alice.open_stream(ANY)
        with pytest.raises(StreamResetError, match="does not negotiate") as caught:
            await stream.receive_some()
        assert isinstance(caught.value.__cause__, RemoteProtocolError)
        with pytest.raises(StreamResetError):
            await stream.receive_some()
        await stream.aclose()
        await wait_all_tasks_blocked()
        assert sessions.sizes == (0,) * 8
        assert sessions.alice.is_open


async def test_an_end_in_the_place_of_an_agreement() -> None:
    async def serve(stream: MuxStream) -> None:
        await stream.receive_some()
        await stream.send_eof()

    async with open_sessions(serve=serve) as sessions:
        stream = await sessions.alice.open_stream(ANY)
        with pytest.raises(StreamResetError, match="before it agreed"):
            await stream.receive_some()


@pytest.mark.parametrize("end", [MuxStream.send_eof, MuxStream.aclose])
async def test_an_end_in_the_place_of_a_protocols_name(end: Callable[[MuxStream], Awaitable[None]]) -> None:
    refused: list[StreamResetError] = []

    async def serve(stream: MuxStream) -> None:
        try:
            await wait_name(stream, Responder(bool))
        except StreamResetError as exc:
            refused.append(exc)

    async with open_sessions(serve=serve) as sessions:
        stream = MuxStream(sessions.alice, Direction.OUTBOUND)
        await stream.send_all(GREETING)
        await end(stream)
        await wait_all_tasks_blocked()
        assert "before it named a protocol" in str(refused[0])
