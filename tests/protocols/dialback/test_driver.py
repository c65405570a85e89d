"""A member asks a router, over a simulated network that says where sessions come from."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Admission, Stream
from agentmesh.errors import DialError, ErrorCode, RejectedError, StreamResetError
from agentmesh.identity import Identity
from agentmesh.protocols.dialback import DIALBACK_ID, MAX_ADDRESSES, DialBack, DialBackLimits, ask
from agentmesh.protocols.dialback.driver import DIAL_TIMEOUT
from agentmesh.protocols.dialback.machine import ANSWER_TIMEOUT, REQUEST_TIMEOUT
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.registry import Protocol, Serve
from agentmesh.testing import MemoryNetwork
from agentmesh.testing.cancellation import cancel_at_every_await
from agentmesh.types import Address, PeerId

OPEN = Address.parse("/ip4/0.0.0.0/tcp/5002")
SHUT = Address.parse("/ip4/0.0.0.0/tcp/5003")
HANGING = Address.parse("/ip4/0.0.0.0/tcp/5004")
ELSEWHERE = Address.parse("/ip4/192.0.2.9/tcp/5002")


@attrs.frozen
class Doors:
    """Stands in for dialling: one port is open, one is shut, and one does not answer."""

    dialled: list[tuple[PeerId, Address]] = attrs.Factory(list[tuple[PeerId, Address]])

    async def probe(self, peer: PeerId, address: Address) -> bool:
        self.dialled.append((peer, address))
        if address.value("tcp") == HANGING.value("tcp"):
            await trio.sleep_forever()
        await trio.sleep(0.1)
        return address.value("tcp") == OPEN.value("tcp")


@attrs.frozen
class Asking:
    member: Host
    router: Host
    dialback: DialBack
    doors: Doors

    async def ask(self, *addresses: Address) -> tuple[Address, ...]:
        return await ask(self.member.open_stream, self.router.peer, addresses)


@asynccontextmanager
async def connected(protocol: Protocol) -> AsyncGenerator[tuple[Host, Host]]:
    """A member, and the router that it has a session with and is admitted at."""
    network = MemoryNetwork()
    listen = [Address.parse("/memory/0")]
    async with (
        open_host(
            identity=Identity.generate(), transports=[network.transport("r")], protocols=[protocol], listen=listen
        ) as router,
        open_host(identity=Identity.generate(), transports=[network.transport("m")]) as member,
    ):
        await member.connect(router.peer, router.addresses)
        await wait_all_tasks_blocked()
        router.admissions.admit(member.peer, Admission.MEMBER, float("inf"))
        yield member, router


@asynccontextmanager
async def asking(limits: DialBackLimits | None = None) -> AsyncGenerator[Asking]:
    doors = Doors()
    dialback = DialBack(doors.probe, limits)
    async with connected(dialback.protocol()) as (member, router):
        yield Asking(member, router, dialback, doors)


def at_source(asking: Asking, address: Address) -> Address:
    """The address with the IP address that the router sees."""
    session = asking.router.session(asking.member.peer)
    assert session is not None
    assert session.address is not None
    return Address((session.address.parts[0], *address.parts[1:]))


async def test_a_member_hears_where_it_was_reached(autojump_clock: MockClock) -> None:
    async with asking() as there:
        assert await there.ask(SHUT, OPEN, ELSEWHERE) == (at_source(there, OPEN),)
        wanted = {at_source(there, address) for address in (SHUT, OPEN)}
        assert {address for _, address in there.doors.dialled} == wanted
        assert {peer for peer, _ in there.doors.dialled} == {there.member.peer}
        assert there.dialback.reached == {True: 1, False: 1}


async def test_where_nothing_may_be_dialled_nothing_is_reached(autojump_clock: MockClock) -> None:
    async with asking() as there:
        assert await there.ask(ELSEWHERE) == ()
        assert there.doors.dialled == []


async def test_addresses_are_dialled_at_once_and_not_for_long(autojump_clock: MockClock) -> None:
    async with asking() as there:
        assert await there.ask(HANGING, OPEN) == (at_source(there, OPEN),)
        assert trio.current_time() == pytest.approx(DIAL_TIMEOUT)


async def test_no_more_is_asked_than_a_request_holds(autojump_clock: MockClock) -> None:
    async with asking() as there:
        await there.ask(*(Address.parse(f"/ip4/0.0.0.0/tcp/{port}") for port in range(1, 20)))
        assert len(there.doors.dialled) == MAX_ADDRESSES


async def test_who_asks_too_often_waits(autojump_clock: MockClock) -> None:
    async with asking() as there:
        for _ in range(4):
            await there.ask(OPEN)
        with pytest.raises(RejectedError) as refused:
            await there.ask(OPEN)
        assert refused.value.code == ErrorCode.RATE_LIMITED
        assert len(there.doors.dialled) == 4
        await trio.sleep(60)
        assert await there.ask(OPEN) != ()


async def test_only_so_many_are_dialled_for_at_once(autojump_clock: MockClock) -> None:
    async with asking(DialBackLimits(max_requests=1)) as there, trio.open_nursery() as nursery:
        nursery.start_soon(there.ask, HANGING)
        await wait_all_tasks_blocked()
        with pytest.raises(RejectedError) as refused:
            await there.ask(OPEN)
        assert refused.value.code == ErrorCode.RESOURCE_LIMIT_EXCEEDED
        await trio.sleep(DIAL_TIMEOUT + 1)
        assert await there.ask(OPEN) != ()


async def test_a_stranger_is_refused(autojump_clock: MockClock) -> None:
    async with asking() as there:
        there.router.admissions.revoke(there.member.peer)
        with pytest.raises(RejectedError) as refused:
            await there.ask(OPEN)
        assert refused.value.code == ErrorCode.GATED
        assert there.doors.dialled == []


async def test_without_a_session_nobody_is_asked(autojump_clock: MockClock) -> None:
    async with asking() as there:
        session = there.member.session(there.router.peer)
        assert session is not None
        session.abort("gone")
        with pytest.raises(DialError):
            await there.ask(OPEN)


@pytest.mark.parametrize(("sent", "seconds"), [(b"\x05\x08", REQUEST_TIMEOUT), (b"\x02\xff\xff", 0.0), (b"\x00", 0.0)])
async def test_what_is_no_request_costs_the_stream(autojump_clock: MockClock, sent: bytes, seconds: float) -> None:
    async with asking() as there:
        stream = await there.member.open_stream(there.router.peer, DIALBACK_ID)
        await stream.send_all(sent)
        with pytest.raises(StreamResetError):
            await stream.receive_some()
        assert trio.current_time() == pytest.approx(seconds)


async def silent(stream: Stream) -> None:
    await trio.sleep_forever()


async def ending(stream: Stream) -> None:
    await stream.receive_some()


@pytest.mark.parametrize(("serve", "seconds"), [(silent, ANSWER_TIMEOUT), (ending, 0.0)])
async def test_a_router_that_does_not_answer(autojump_clock: MockClock, serve: Serve, seconds: float) -> None:
    async with connected(Protocol(DIALBACK_ID, serve)) as (member, router):
        with pytest.raises(trio.TooSlowError):
            await ask(member.open_stream, router.peer, [OPEN])
        assert trio.current_time() == pytest.approx(seconds)


async def test_a_question_cancelled_anywhere_leaves_nothing(autojump_clock: MockClock) -> None:
    async with asking(DialBackLimits(max_requests=1)) as there:

        async def question() -> None:
            await there.ask(OPEN)

        async def check() -> None:
            await trio.sleep(100)
            session = there.member.session(there.router.peer)
            assert session is not None
            assert session.streams == ()

        assert await cancel_at_every_await(question, check=check) >= 3
