"""Streams that are only talked on, without a task for each: what they take, and how their end is told."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Admission, Stream
from agentmesh.errors import ErrorCode, RejectedError, SessionClosedError, StreamResetError
from agentmesh.runtime.config import HostConfig, SessionConfig
from agentmesh.runtime.host import Host
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.telling import Telling
from agentmesh.runtime.yamux import MuxLimits
from agentmesh.testing import MemoryNetwork
from agentmesh.types import ProtocolId
from tests.runtime.hosts import open_named

HEARS, TALKS, CUTS, GATED, UNKNOWN = (ProtocolId(f"/test/{name}") for name in ("hears", "talks", "cuts", "gated", "no"))


class Peer:
    """What it heard; it reads only when it may."""

    def __init__(self) -> None:
        self.heard = b""
        self.may_read = trio.Event()

    async def hear(self, stream: Stream) -> None:
        await self.may_read.wait()
        async for data in stream:
            self.heard += data

    async def talk(self, stream: Stream) -> None:
        await stream.send_all(b"me too")
        await trio.sleep_forever()

    async def cut(self, stream: Stream) -> None:
        await trio.lowlevel.checkpoint()
        stream.reset(ErrorCode.RESOURCE_LIMIT_EXCEEDED)


@asynccontextmanager
async def open_two(peer: Peer, config: HostConfig | None = None) -> AsyncGenerator[tuple[Host, Host]]:
    network = MemoryNetwork()
    served = [
        Protocol(HEARS, peer.hear),
        Protocol(TALKS, peer.talk),
        Protocol(CUTS, peer.cut),
        Protocol(GATED, peer.hear, Admission.MEMBER),
    ]
    async with open_named(network, "one", [], config=config) as one, open_named(network, "other", served) as other:
        await one.connect(other.peer, other.addresses)
        yield one, other


async def test_what_is_pushed_arrives_and_the_end_is_told_once(autojump_clock: MockClock) -> None:
    peer, over = Peer(), list[trio.BrokenResourceError]()
    peer.may_read.set()
    async with open_two(peer) as (one, other):
        telling = Telling(await one.open_stream(other.peer, HEARS), over.append)
        for word in (b"one ", b"two ", b"three"):
            assert telling.push(word)
        await wait_all_tasks_blocked()
        assert (peer.heard, over) == (b"one two three", [])
        session = one.session(other.peer)
        assert session is not None
        session.abort("enough")
        assert [type(error) for error in over] == [SessionClosedError]
        assert not telling.push(b"four")
    assert len(over) == 1


@pytest.mark.parametrize(
    ("protocol", "error", "code"),
    [
        (TALKS, trio.BrokenResourceError, None),
        (CUTS, StreamResetError, ErrorCode.RESOURCE_LIMIT_EXCEEDED),
        (GATED, RejectedError, ErrorCode.GATED),
        (UNKNOWN, RejectedError, None),
    ],
)
async def test_what_a_peer_does_instead_of_listening(
    protocol: ProtocolId, error: type[Exception], code: ErrorCode | None, autojump_clock: MockClock
) -> None:
    over = list[trio.BrokenResourceError]()
    async with open_two(Peer()) as (one, other):
        telling = Telling(await one.open_stream(other.peer, protocol), over.append)
        assert telling.push(b"hello")
        await wait_all_tasks_blocked()
        (told,) = over
        assert isinstance(told, error)
        assert code is None or getattr(told, "code", None) == code
        telling.stream.reset()
    assert len(over) == 1


async def test_a_stream_that_there_is_no_room_for_is_over_at_once(autojump_clock: MockClock) -> None:
    peer, over = Peer(), list[trio.BrokenResourceError]()
    config = HostConfig(session=SessionConfig(mux=MuxLimits(max_outbound_streams=1)))
    async with open_two(peer, config) as (one, other):
        first, second = [Telling(await one.open_stream(other.peer, HEARS), over.append) for _ in range(2)]
        assert first.push(b"hello")
        assert second.push(b"hello")
        assert [type(error) for error in over] == [RejectedError]
        first.end()


async def test_a_peer_that_does_not_read_is_waited_for_by_whoever_wants_to(autojump_clock: MockClock) -> None:
    peer, over, pushed = Peer(), list[trio.BrokenResourceError](), 0
    async with open_two(peer) as (one, other):
        telling = Telling(await one.open_stream(other.peer, HEARS), over.append)
        while telling.push(bytes(65536)):
            pushed += 1
            await wait_all_tasks_blocked()
            assert pushed < 100, "there is a bound"
        peer.may_read.set()
        await telling.stream.send_all(b"at last")
        await wait_all_tasks_blocked()
        assert peer.heard == bytes(pushed * 65536) + b"at last"
        telling.end()
        await telling.stream.aclose()
    assert over == []
