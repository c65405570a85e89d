"""Members and routers: what is announced at one router is found at any, and nobody speaks for somebody else."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.abc import Admission
from agentmesh.errors import DialError, ErrorCode, NotConnectedError, RejectedError, StreamResetError
from agentmesh.protocols.directory import (
    DIRECTORY_ID,
    Announcement,
    Answer,
    Directory,
    DirectoryConfig,
    Found,
    Operation,
    Placement,
    Provide,
    Result,
    Status,
    StoreLimits,
    ask,
    peer_key,
    service_key,
)
from agentmesh.protocols.directory.driver import MAX_STREAMS_PER_PEER
from agentmesh.protocols.directory.events import RECORD_TTL
from agentmesh.protocols.directory.machine import REQUEST_TIMEOUT
from agentmesh.protocols.directory.placement import closest
from agentmesh.protocols.directory.wire import encode_request
from agentmesh.runtime.yamux import Allowance
from agentmesh.testing import cancel_at_every_await
from agentmesh.testing.expect import leaves
from agentmesh.types import Address
from agentmesh.wire.framing import encode_frame, encode_varint
from tests.protocols.directory.net import HERE, SERVICE, Federation, Router, count, open_net, send_raw
from tests.runtime.hosts import open_named


async def test_what_is_announced_at_one_router_is_found_at_another(autojump_clock: MockClock) -> None:
    async with open_net(3, replication=3) as net:
        provider, caller = await net.add_member(net.routers[0]), await net.add_member(net.routers[2])
        assert await caller.find() == set()
        assert await provider.announce(sequence=7) == Answer(placed=3)
        (found,) = await caller.client.find_providers(SERVICE)
        assert (found.peer, found.addresses, found.sequence) == (provider.host.peer, (provider.address,), 7)
        assert RECORD_TTL - 2 < found.ttl <= RECORD_TTL
        assert await caller.find(service_key("mcp")) == set()
        assert net.routers[2].results() == {"place ok": 1, "find_providers not_found": 2, "find_providers ok": 1}


async def test_a_record_is_where_it_belongs_and_where_it_was_said(autojump_clock: MockClock) -> None:
    async with open_net(5) as net:
        provider = await net.add_member(net.routers[0])
        await provider.announce()
        homes = closest(SERVICE, [router.host.peer for router in net.routers], 2)
        holders = {router.host.peer for router in net.routers if len(router.directory.store)}
        assert holders == {*homes, net.routers[0].host.peer}
        placements = net.routers[0].directory.statistics().placements
        assert placements == {Placement.PLACED: len(holders) - 1, Placement.REFUSED: 0, Placement.FAILED: 0}


async def test_a_peer_is_found_by_its_record_through_a_router_that_does_not_hold_it(autojump_clock: MockClock) -> None:
    async with open_net(3) as net:
        provider, caller = await net.add_member(net.routers[0]), await net.add_member(net.routers[1])
        assert await caller.client.find_peer(provider.host.peer) is None
        await provider.announce(peer_key(provider.host.peer))
        found = await caller.client.find_peer(provider.host.peer)
        assert found is not None
        assert (found.peer, found.addresses) == (provider.host.peer, (provider.address,))


async def test_the_router_that_holds_a_peer_says_what_it_sees(autojump_clock: MockClock) -> None:
    seen = Address.parse("/memory/5")
    async with open_net() as net:
        held = await net.add_router(reach=lambda peer: [seen.with_peer(peer)])
        asked = await net.add_router()
        net.list_all()
        provider, caller = await net.add_member(held), await net.add_member(asked)
        for router in (held, asked):
            there = await net.add_member(router)
            found = await there.client.find_peer(provider.host.peer)
            assert found == Found(provider.host.peer, (seen.with_peer(provider.host.peer),))
        assert caller.host.peer != provider.host.peer


async def test_a_record_expires_everywhere(autojump_clock: MockClock) -> None:
    async with open_net(3, replication=3) as net:
        provider, caller = await net.add_member(net.routers[0]), await net.add_member(net.routers[1])
        await provider.announce(ttl=100.0)
        await trio.sleep(99)
        assert await caller.find() == {provider.host.peer}
        await trio.sleep(2)
        assert await caller.find() == set()
        for router in net.routers:
            statistics = router.directory.statistics()
            assert (statistics.records, statistics.keys, statistics.providers) == (0, 0, 0)


async def test_what_is_withdrawn_is_gone_at_once(autojump_clock: MockClock) -> None:
    async with open_net(3, replication=3) as net:
        provider, caller = await net.add_member(net.routers[0]), await net.add_member(net.routers[1])
        await provider.announce(sequence=1)
        assert await provider.announce(sequence=2, ttl=0.0) == Answer(placed=3)
        assert await caller.find() == set()
        assert (await provider.announce(sequence=1)).status is Status.OUTDATED


async def test_what_a_router_was_told_withdrawn_another_cannot_bring_back(autojump_clock: MockClock) -> None:
    async with open_net(3) as net:
        first, second = net.routers[:2]
        provider, caller = await net.add_member(first, second), await net.add_member(second)
        await provider.announce(sequence=1)
        gone = Provide(Announcement(SERVICE, (), 2, 0.0))
        second.federation.listed = []
        assert await ask(provider.host.open_stream, second.host.peer, gone) == Answer(placed=1)
        net.list_all()
        assert await caller.find() == set()


async def test_an_older_announcement_is_told_what_it_has_to_exceed(autojump_clock: MockClock) -> None:
    async with open_net(1) as net:
        provider = await net.add_member(net.routers[0])
        await provider.announce(sequence=7)
        assert await provider.announce(sequence=3) == Answer(Status.OUTDATED, sequence=7)
        assert count(provider, Operation.PROVIDE, Result.OUTDATED) == 1


async def test_one_alone_is_a_mesh_too_and_what_it_is_asked_can_be_observed(autojump_clock: MockClock) -> None:
    observed: list[tuple[Operation, Result]] = []
    async with open_net() as net:
        alone = Directory(observe=lambda operation, result, seconds: observed.append((operation, result)))
        host = await net.stack.enter_async_context(open_named(net.network, "alone", [alone.protocol()]))
        member = await net.add_member(Router("alone", host, alone, Federation()))
        assert await member.announce() == Answer(placed=1)
        assert await member.find() == {member.host.peer}
        assert await member.client.find_peer(member.host.peer) is None
    assert observed == [
        (Operation.PROVIDE, Result.OK),
        (Operation.FIND_PROVIDERS, Result.OK),
        (Operation.FIND_PEER, Result.NOT_FOUND),
    ]


# ── who may ──


async def test_nothing_is_served_before_admission(autojump_clock: MockClock) -> None:
    async with open_net(1) as net:
        stranger = await net.add_member(net.routers[0], level=Admission.ANYONE)
        with pytest.raises(DialError) as refused:
            await stranger.announce()
        assert isinstance(refused.value.__cause__, RejectedError)
        assert refused.value.__cause__.code == ErrorCode.GATED
        assert net.routers[0].results() == {}


async def test_a_member_that_names_a_provider_loses_its_stream_and_is_counted(autojump_clock: MockClock) -> None:
    async with open_net(1) as net:
        victim, mallory = await net.add_member(net.routers[0]), await net.add_member(net.routers[0])
        forged = Provide(Announcement(SERVICE, (victim.address,), 9), victim.host.peer)
        with pytest.raises(StreamResetError) as cut:
            await ask(mallory.host.open_stream, net.routers[0].host.peer, forged)
        assert cut.value.code == ErrorCode.PROTOCOL_VIOLATION
        assert net.routers[0].results() == {"place forged": 1}
        assert await mallory.find() == set()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (encode_frame(b"\xff"), ErrorCode.PROTOCOL_VIOLATION),
        (encode_frame(encode_request(Provide(Announcement(SERVICE, (HERE,))))), ErrorCode.PROTOCOL_VIOLATION),
        (encode_varint(10 * 1024 * 1024), ErrorCode.RESOURCE_LIMIT_EXCEEDED),
    ],
    ids=["garbage", "somebody_elses_address", "ten_mebibytes"],
)
async def test_what_cannot_be_read_is_the_peers_doing(data: bytes, code: int, autojump_clock: MockClock) -> None:
    async with open_net(1) as net:
        mallory = await net.add_member(net.routers[0])
        with pytest.raises(StreamResetError) as cut:
            await send_raw(mallory, net.routers[0], data)
        assert cut.value.code == code
        assert net.routers[0].results() == {"unknown malformed": 1}
        assert await mallory.announce() == Answer(placed=1)


async def test_a_request_is_due_in_time(autojump_clock: MockClock) -> None:
    async with open_net(1) as net:
        mallory = await net.add_member(net.routers[0])
        started = trio.current_time()
        with pytest.raises(StreamResetError):
            await send_raw(mallory, net.routers[0], b"\x05")
        assert trio.current_time() - started == pytest.approx(REQUEST_TIMEOUT)
        assert net.routers[0].results() == {"unknown failed": 1}


async def test_an_asker_that_breaks_off_is_counted(autojump_clock: MockClock) -> None:
    async with open_net(1) as net:
        member = await net.add_member(net.routers[0])
        stream = await member.host.open_stream(net.routers[0].host.peer, DIRECTORY_ID)
        await stream.send_all(b"\x05")
        await wait_all_tasks_blocked()
        stream.reset()
        await wait_all_tasks_blocked()
        assert net.routers[0].results() == {"unknown failed": 1}


# ── bounds ──


async def test_a_provider_with_too_many_records_is_told_when_to_come_again(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        await net.add_router(DirectoryConfig(store=StoreLimits(max_records_per_provider=2)))
        member = await net.add_member(net.routers[0])
        for n in range(2):
            await member.announce(service_key("mcp", str(n)), ttl=100.0 + n)
        with pytest.raises(DialError) as refused:
            await member.announce(service_key("mcp", "one too many"))
        cause = refused.value.__cause__
        assert isinstance(cause, RejectedError)
        assert cause.retry_after == pytest.approx(100.0, abs=1)
        await trio.sleep(100.5)
        assert (await member.announce(service_key("mcp", "not any more"))).status is Status.OK


async def test_a_full_router_is_told_of_by_the_next(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        full = await net.add_router(DirectoryConfig(store=StoreLimits(max_records=1)))
        roomy = await net.add_router()
        first, second = await net.add_member(full), await net.add_member(full, roomy)
        await first.announce()
        assert await second.announce() == Answer(placed=1)
        assert full.results() == {"provide ok": 1, "provide limited": 1}
        assert (count(second, Operation.PROVIDE, Result.LIMITED), count(second, Operation.PROVIDE, Result.OK)) == (1, 1)


async def test_a_record_that_a_full_router_refuses_is_counted_and_lost_there_only(autojump_clock: MockClock) -> None:
    async with open_net(1) as net:
        await net.add_router(DirectoryConfig(store=StoreLimits(max_records=1)))
        net.list_all()
        first, second = await net.add_member(net.routers[1]), await net.add_member(net.routers[0])
        await first.announce(service_key("mcp"))
        assert await second.announce() == Answer(placed=1)
        assert net.routers[0].directory.statistics().placements[Placement.REFUSED] == 1
        assert await first.find() == {second.host.peer}


async def test_a_member_asks_only_so_often(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        await net.add_router(DirectoryConfig(max_requests=Allowance(burst=3, per_second=1)))
        flooder, other = await net.add_member(net.routers[0]), await net.add_member(net.routers[0])
        for _ in range(3):
            await flooder.find()
        with pytest.raises(DialError) as refused:
            await flooder.find()
        cause = refused.value.__cause__
        assert isinstance(cause, RejectedError)
        assert cause.retry_after is not None
        await other.find()
        await trio.sleep(cause.retry_after)
        await flooder.find()
        assert net.routers[0].results() == {"find_providers not_found": 5, "find_providers limited": 1}


async def test_a_peer_has_so_many_requests_at_once(autojump_clock: MockClock) -> None:
    async with open_net(1) as net:
        router, member = net.routers[0], await net.add_member(net.routers[0])
        opened = [await member.host.open_stream(router.host.peer, DIRECTORY_ID) for _ in range(MAX_STREAMS_PER_PEER)]
        for stream in opened:
            await stream.send_all(b"\x05")
        await wait_all_tasks_blocked()
        with pytest.raises(DialError) as refused:
            await member.find()
        assert isinstance(refused.value.__cause__, RejectedError)


async def test_no_more_is_answered_than_was_asked_for(autojump_clock: MockClock) -> None:
    async with open_net(2) as net:
        providers = [await net.add_member(net.routers[n % 2]) for n in range(6)]
        for provider in providers:
            await provider.announce()
        everybody = {provider.host.peer for provider in providers}
        assert await providers[0].find() == everybody
        given = [await providers[0].find(limit=2) for _ in range(3)]
        assert [len(some) for some in given] == [2, 2, 2]
        assert set().union(*given) == everybody, "everybody has a turn"


async def test_a_peer_that_is_out_of_the_mesh_is_forgotten(autojump_clock: MockClock) -> None:
    async with open_net(1) as net:
        member = await net.add_member(net.routers[0])
        await member.announce()
        net.routers[0].directory.forget(member.host.peer)
        assert await member.find() == set()


# ── the client ──


async def test_without_a_router_there_is_nobody_to_ask(autojump_clock: MockClock) -> None:
    async with open_net(1) as net:
        lonely = await net.add_member()
        with pytest.raises(NotConnectedError):
            await lonely.find()


async def test_a_router_that_is_away_costs_a_request_its_timeout_and_no_more(autojump_clock: MockClock) -> None:
    async with open_net(2) as net:
        member = await net.add_member(net.routers[0], net.routers[1])
        net.network.freeze("router-0")
        started = trio.current_time()
        assert await member.announce() == Answer(placed=1)
        assert trio.current_time() - started < 10
        assert count(member, Operation.PROVIDE, Result.FAILED) == 1


async def test_when_all_routers_fail_each_says_why(autojump_clock: MockClock) -> None:
    async with open_net(2) as net:
        member = await net.add_member(*net.routers, level=Admission.ANYONE)
        with pytest.raises(DialError) as failed:
            await member.find()
        assert failed.value.__cause__ is not None
        assert len(leaves(failed.value.__cause__)) == 2


async def test_a_request_cancelled_anywhere_leaves_nothing(autojump_clock: MockClock) -> None:
    async with open_net(3) as net:
        member, sequence = await net.add_member(net.routers[0]), 0

        async def operation() -> None:
            nonlocal sequence
            sequence += 1
            await member.announce(sequence=sequence)
            await member.find()

        async def check() -> None:
            await trio.sleep(5)
            for host in (member.host, *(router.host for router in net.routers)):
                assert [stream for session in host.connections for stream in session.streams] == []
                assert host.statistics().streams.serving == 0

        assert await cancel_at_every_await(operation, check=check) >= 6
