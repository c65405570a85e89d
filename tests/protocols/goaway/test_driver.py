"""A go-away between two hosts, in virtual time."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Stream
from agentmesh.errors import ErrorCode, RejectedError, StreamResetError
from agentmesh.protocols.goaway import GOAWAY_ID, GoAway, Reason, Result, protocol, send_goaway
from agentmesh.protocols.goaway.machine import GOAWAY_TIMEOUT
from agentmesh.runtime.host import Host
from agentmesh.runtime.registry import Protocol, Serve
from agentmesh.testing.cancellation import cancel_at_every_await
from agentmesh.types import PeerId
from tests.protocols.ping.test_driver import two_hosts

GOAWAY = GoAway(Reason.OVERLOADED, 300.0)


@attrs.define
class Member:
    """What a member was told, and whether it is attached."""

    attached: bool = True
    heard: list[tuple[PeerId, GoAway]] = attrs.Factory(list[tuple[PeerId, GoAway]])

    def protocol(self) -> Protocol:
        def hear(router: PeerId, goaway: GoAway) -> None:
            self.heard.append((router, goaway))

        return protocol(lambda _: self.attached, hear)


@asynccontextmanager
async def router_and(protocols: Sequence[Protocol]) -> AsyncGenerator[tuple[Host, PeerId]]:
    async with two_hosts(protocols) as (router, listener):
        yield router, listener.peer


async def test_a_member_is_told(autojump_clock: MockClock) -> None:
    member = Member()
    async with router_and([member.protocol()]) as (router, peer):
        assert await send_goaway(router.open_stream, peer, GOAWAY) is Result.OK
        assert member.heard == [(router.peer, GOAWAY)]
        session = router.session(peer)
        assert session is not None
        assert session.is_open  # the router closes it, later


async def test_a_router_that_a_member_is_not_attached_to_is_reset(autojump_clock: MockClock) -> None:
    member = Member(attached=False)
    async with router_and([member.protocol()]) as (router, peer):
        assert await send_goaway(router.open_stream, peer, GOAWAY) is Result.FAILED
        assert member.heard == []
        stream = await router.open_stream(peer, GOAWAY_ID)
        await stream.send_all(b"\x00")
        with pytest.raises(RejectedError) as refused:
            await stream.receive_some()
        assert refused.value.code == ErrorCode.GATED


async def test_a_member_that_was_lost_while_it_was_told_is_not(autojump_clock: MockClock) -> None:
    member = Member()
    async with router_and([member.protocol()]) as (router, peer):
        stream = await router.open_stream(peer, GOAWAY_ID)
        await stream.send_all(b"\x02\x08")
        await wait_all_tasks_blocked()
        member.attached = False
        await stream.send_all(b"\x01")
        with pytest.raises(RejectedError):
            await stream.receive_some()
        assert member.heard == []


async def test_a_peer_without_the_protocol_is_known_as_one(autojump_clock: MockClock) -> None:
    async with router_and([]) as (router, peer):
        assert await send_goaway(router.open_stream, peer, GOAWAY) is Result.UNSUPPORTED


async def test_a_peer_without_a_session_is_not_told(autojump_clock: MockClock) -> None:
    async with router_and([]) as (router, peer):
        session = router.session(peer)
        assert session is not None
        session.abort("gone")
        assert await send_goaway(router.open_stream, peer, GOAWAY) is Result.FAILED


async def silent(stream: Stream) -> None:
    while await stream.receive_some():
        pass
    await trio.sleep_forever()


async def talkative(stream: Stream) -> None:
    await stream.send_all(b"why?")
    await trio.sleep_forever()


@pytest.mark.parametrize(("serve", "seconds"), [(silent, GOAWAY_TIMEOUT), (talkative, 0.0)])
async def test_a_member_that_does_not_do_its_part(autojump_clock: MockClock, serve: Serve, seconds: float) -> None:
    async with router_and([Protocol(GOAWAY_ID, serve)]) as (router, peer):
        assert await send_goaway(router.open_stream, peer, GOAWAY) is Result.FAILED
        assert trio.current_time() == pytest.approx(seconds)


@pytest.mark.parametrize(("sent", "seconds"), [(b"\x05\x08", GOAWAY_TIMEOUT), (b"\x02\xff\xff", 0.0)])
async def test_what_is_no_goaway_costs_the_stream(autojump_clock: MockClock, sent: bytes, seconds: float) -> None:
    member = Member()
    async with router_and([member.protocol()]) as (router, peer):
        stream = await router.open_stream(peer, GOAWAY_ID)
        await stream.send_all(sent)
        with pytest.raises(StreamResetError):
            await stream.receive_some()
        assert trio.current_time() == pytest.approx(seconds)
        assert member.heard == []


async def test_one_peer_may_not_open_many(autojump_clock: MockClock) -> None:
    async with router_and([Member().protocol()]) as (router, peer):
        for _ in range(2):
            await (await router.open_stream(peer, GOAWAY_ID)).send_all(b"\x05")
        await wait_all_tasks_blocked()
        third = await router.open_stream(peer, GOAWAY_ID)
        await third.send_all(b"\x05")
        with pytest.raises(RejectedError) as refused:
            await third.receive_some()
        assert refused.value.code == ErrorCode.RESOURCE_LIMIT_EXCEEDED


async def test_a_goaway_cancelled_anywhere_leaves_nothing(autojump_clock: MockClock) -> None:
    async with router_and([Member().protocol()]) as (router, peer):

        async def tell() -> None:
            await send_goaway(router.open_stream, peer, GOAWAY)

        async def check() -> None:
            await wait_all_tasks_blocked()
            session = router.session(peer)
            assert session is not None
            assert session.streams == ()

        assert await cancel_at_every_await(tell, check=check) >= 3
