"""Routers among themselves: who is asked, who is waited for, and where records go as routers come and go."""

import pytest
import trio
from trio.testing import MockClock

from agentmesh.errors import DialError, RejectedError
from agentmesh.protocols.directory import (
    Answer,
    DirectoryConfig,
    FindPeer,
    FindProviders,
    Placement,
    ask,
    peer_key,
    service_key,
)
from agentmesh.protocols.directory.lookup import LOOKUP_PATIENCE, LOOKUP_TIMEOUT
from agentmesh.protocols.directory.moving import MAX_PLACING, MOVE_INTERVAL
from agentmesh.protocols.directory.neighbours import REACH_TIMEOUT
from agentmesh.protocols.directory.placement import closest
from agentmesh.types import PeerId
from tests.protocols.directory.net import SERVICE, Net, Router, join, open_net

KEYS = [service_key("mcp", str(n)) for n in range(30)]


async def join_all(net: Net) -> None:
    for router in net.routers:
        await router.federation.reach_all()


async def test_a_request_joins_routers_that_were_not_reached_yet(autojump_clock: MockClock) -> None:
    async with open_net(2) as net:
        provider = await net.add_member(net.routers[0])
        assert net.routers[0].federation.routers == []
        assert await provider.announce() == Answer(placed=2)


async def test_routers_that_cannot_be_reached_are_not_waited_for_long(autojump_clock: MockClock) -> None:
    async with open_net(1) as net:
        member = await net.add_member(net.routers[0])
        net.routers[0].federation.hangs = True
        started = trio.current_time()
        await member.announce()
        assert trio.current_time() - started == pytest.approx(REACH_TIMEOUT)
        assert await member.find() == {member.host.peer}
        assert await member.find(KEYS[0]) == set(), "the list is not waited for either"
        assert trio.current_time() - started == pytest.approx(4 * REACH_TIMEOUT)


async def test_a_lookup_that_found_nothing_reads_the_list_again(autojump_clock: MockClock) -> None:
    async with open_net(2) as net:
        asked, unknown = net.routers
        asked.federation.listed, unknown.federation.listed = [asked.host], [unknown.host]
        provider, caller = await net.add_member(unknown), await net.add_member(asked)
        await provider.announce()
        asked.federation.news = [unknown.host]
        assert await caller.find() == {provider.host.peer}
        assert asked.federation.reads == 1
        assert await caller.find() == {provider.host.peer}
        assert asked.federation.reads == 1, "once something is found nobody reads it"


@pytest.mark.parametrize("frozen", [1, 2])
async def test_a_router_that_hangs_costs_a_moment_when_something_is_in_hand(
    frozen: int, autojump_clock: MockClock
) -> None:
    async with open_net(3) as net:
        provider = await net.add_member(net.routers[0])
        await join_all(net)
        await provider.announce()
        for router in net.routers[1 : 1 + frozen]:
            net.network.freeze(router.name)
        started = trio.current_time()
        assert await provider.find() == {provider.host.peer}
        assert trio.current_time() - started == pytest.approx(LOOKUP_PATIENCE, abs=0.01)


async def test_with_nothing_in_hand_the_others_are_waited_for(autojump_clock: MockClock) -> None:
    config = DirectoryConfig(lookup_timeout=1.0)
    async with open_net() as net:
        asked = await net.add_router(config)
        hanging = await net.add_router()
        net.list_all()
        caller = await net.add_member(asked)
        await join(asked.host, hanging.host)
        net.network.freeze(hanging.name)
        started = trio.current_time()
        with pytest.raises(DialError) as failed:
            await caller.find()
        assert trio.current_time() - started == pytest.approx(1.0, abs=0.01)
        assert isinstance(failed.value.__cause__, RejectedError)
        assert asked.results() == {"find_providers unavailable": 1}
        assert LOOKUP_TIMEOUT == 2.5


async def test_how_long_the_slow_are_waited_for_is_a_setting(autojump_clock: MockClock) -> None:
    async with open_net() as net:
        asked = await net.add_router(DirectoryConfig(lookup_patience=0.05))
        hanging = await net.add_router()
        net.list_all()
        member = await net.add_member(asked)
        await join(asked.host, hanging.host)
        await member.announce()
        net.network.freeze(hanging.name)
        started = trio.current_time()
        assert await member.find() == {member.host.peer}
        assert trio.current_time() - started == pytest.approx(0.05, abs=0.01)


async def test_a_router_is_answered_from_what_the_other_holds_itself(autojump_clock: MockClock) -> None:
    """A request goes over one router and no further."""
    async with open_net(2) as net:
        asking, asked = net.routers
        await join_all(net)
        provider = await net.add_member(asked)
        asked.federation.listed = []
        await provider.announce()
        await provider.announce(peer_key(provider.host.peer))
        net.list_all()
        for request in (FindProviders(SERVICE), FindPeer(provider.host.peer)):
            answer = await ask(asking.host.open_stream, asked.host.peer, request)
            assert [one.peer for one in answer.found] == [provider.host.peer]
            assert await ask(asked.host.open_stream, asking.host.peer, request) == Answer()
        assert asking.federation.reads == 0


async def test_a_placement_that_fails_is_counted(autojump_clock: MockClock) -> None:
    async with open_net(2) as net:
        provider = await net.add_member(net.routers[0])
        await join_all(net)
        net.network.freeze(net.routers[1].name)
        assert await provider.announce() == Answer(placed=1)
        assert net.routers[0].directory.statistics().placements[Placement.FAILED] == 1


# ── records move ──


def holders(net: Net, key: bytes) -> set[PeerId]:
    now = trio.current_time()
    return {router.host.peer for router in net.routers if router.directory.store.find(key, 9, now)}


def belongs(net: Net, key: bytes, routers: list[Router]) -> set[PeerId]:
    return set(closest(key, [router.host.peer for router in routers], 2))


async def settle() -> None:
    await trio.sleep(3 * MOVE_INTERVAL)


async def test_records_move_to_a_router_that_joins_and_leave_the_ones_they_belong_to_no_more(
    autojump_clock: MockClock,
) -> None:
    async with open_net(3) as net:
        provider = await net.add_member(net.routers[0])
        await join_all(net)
        for key in KEYS:
            await provider.announce(key)
        newcomer = await net.add_router()
        net.list_all()
        await join_all(net)
        await settle()
        for key in KEYS:
            homes = belongs(net, key, net.routers)
            assert holders(net, key) == homes | {net.routers[0].host.peer}
        assert newcomer.directory.statistics().records > 5


async def test_records_of_a_router_that_leaves_are_held_by_others(autojump_clock: MockClock) -> None:
    async with open_net(4) as net:
        first, *others = net.routers
        provider, caller = await net.add_member(first), await net.add_member(others[0])
        await join_all(net)
        for key in KEYS:
            await provider.announce(key)
        net.network.freeze(first.name)
        await trio.sleep(120)  # until the others have noticed
        await settle()
        for key in KEYS:
            homes = belongs(net, key, others)
            assert {peer for peer in holders(net, key) if peer != first.host.peer} >= homes
            assert await caller.find(key) == {provider.host.peer}


async def test_what_is_withdrawn_or_over_does_not_move_as_a_record(autojump_clock: MockClock) -> None:
    async with open_net(1) as net:
        provider = await net.add_member(net.routers[0])
        await provider.announce(KEYS[0], sequence=1)
        await provider.announce(KEYS[0], sequence=2, ttl=0.0)
        await provider.announce(KEYS[1], ttl=MOVE_INTERVAL)
        newcomer = await net.add_router()
        net.list_all()
        await join_all(net)
        await settle()
        assert not newcomer.directory.store.find(KEYS[0], 9, trio.current_time())
        assert not newcomer.directory.store.find(KEYS[1], 9, trio.current_time())
        withdrawn = newcomer.directory.store.get(KEYS[0], provider.host.peer, trio.current_time())
        assert withdrawn is not None
        assert withdrawn.withdrawn


async def test_records_that_could_not_be_moved_stay(autojump_clock: MockClock) -> None:
    async with open_net(3) as net:
        provider = await net.add_member(net.routers[0])
        await join_all(net)
        for key in KEYS:
            await provider.announce(key)
        before = {key: holders(net, key) for key in KEYS}
        newcomer = await net.add_router()
        net.list_all()
        await join_all(net)
        net.network.freeze(newcomer.name)
        await trio.sleep(60)
        for key in KEYS:
            assert holders(net, key) >= before[key] - {newcomer.host.peer}


async def test_a_record_that_is_over_before_its_turn_is_not_placed(autojump_clock: MockClock) -> None:
    """With no time left it would be taken for a withdrawal."""
    async with open_net(1) as net:
        first = net.routers[0]
        provider = await net.add_member(first)
        for n in range(MAX_PLACING + 4):
            await provider.announce(service_key("mcp", str(n)), ttl=2 * MOVE_INTERVAL)
        newcomer = await net.add_router()
        net.list_all()
        await join_all(net)
        net.network.freeze(newcomer.name)
        await trio.sleep(10)
        assert first.directory.statistics().placements[Placement.FAILED] == MAX_PLACING
