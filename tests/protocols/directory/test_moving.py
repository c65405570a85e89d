"""Records that could not be placed at once: they get where they belong, as soon as that can be."""

import pytest
import trio
from trio.testing import MockClock

from agentmesh.protocols.directory import Announcement, Answer, Placement
from agentmesh.protocols.directory.lookup import LOOKUP_TIMEOUT
from agentmesh.protocols.directory.moving import LEAVE_TIMEOUT, MOVE_INTERVAL, RETRY_INTERVAL
from agentmesh.protocols.directory.placement import closest
from agentmesh.types import PeerId
from tests.protocols.directory.net import SERVICE, Member, Net, Router, open_net

SOON = RETRY_INTERVAL + LOOKUP_TIMEOUT + MOVE_INTERVAL


def holders(net: Net) -> set[PeerId]:
    now = trio.current_time()
    return {router.host.peer for router in net.routers if router.directory.store.find(SERVICE, 9, now)}


def peers_of(net: Net) -> set[PeerId]:
    return {router.host.peer for router in net.routers}


def homes(*routers: Router) -> set[PeerId]:
    return set(closest(SERVICE, [router.host.peer for router in routers], 2))


async def apart(net: Net) -> tuple[Router, Member]:
    """A router that is not where the service's records belong, and its member; the links to the others are down."""
    (away,) = (router for router in net.routers if router.host.peer not in homes(*net.routers))
    member = await net.add_member(away)
    await away.federation.reach_all()
    await trio.sleep(2 * MOVE_INTERVAL)  # until there is nothing to move
    net.network.block(away.name, *(router.name for router in net.routers if router is not away))
    return away, member


async def test_a_placement_that_failed_is_made_when_the_others_can_be_reached(autojump_clock: MockClock) -> None:
    async with open_net(3) as net:
        away, member = await apart(net)
        assert await member.announce() == Answer(placed=1)
        await trio.sleep(SOON)
        assert holders(net) == {away.host.peer}
        net.network.heal(away.name)
        await trio.sleep(SOON)
        assert holders(net) == homes(*net.routers) | {away.host.peer}
        before = away.directory.statistics().placements
        await trio.sleep(SOON)
        assert away.directory.statistics().placements == before, "once is enough"


async def test_what_was_given_up_is_not_done_late(autojump_clock: MockClock) -> None:
    """A record is good for so long from when it arrives: one that is under way for longer would outlive the others."""
    async with open_net(3) as net:
        away, member = await apart(net)
        began = trio.current_time()
        await member.announce(ttl=900.0)
        net.network.heal(away.name)
        await trio.sleep(SOON)
        for router in net.routers:
            record = router.directory.store.get(SERVICE, member.host.peer, trio.current_time())
            assert record is not None
            assert record.expires_at == pytest.approx(began + 900.0, abs=0.01)


async def test_a_router_that_fails_is_asked_once_in_a_while_and_for_few_records_at_once(
    autojump_clock: MockClock,
) -> None:
    async with open_net(2) as net:
        first, second = net.routers
        member = await net.add_member(first)
        await first.federation.reach_all()
        net.network.block(first.name, second.name)
        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(member.announce, bytes([0x12, 0x20, *[number] * 32]))
        failed = first.directory.statistics().placements[Placement.FAILED]
        assert failed == 40
        await trio.sleep(SOON)
        assert failed < first.directory.statistics().placements[Placement.FAILED] <= failed + 2 * 16


async def test_what_is_placed_here_by_another_list_of_routers_moves_on(autojump_clock: MockClock) -> None:
    async with open_net(3) as net:
        away, member = await apart(net)
        net.network.heal(away.name)
        (first, *_) = others = [router for router in net.routers if router is not away]
        teller = await net.add_member(first)
        for router in others:
            await router.federation.reach_all()
        first.federation.listed = [first.host, away.host]  # it has not heard of the third yet, which is a home
        assert (await teller.announce()).placed == 2
        assert member.host.peer not in holders(net)
        assert holders(net) == {first.host.peer, away.host.peer}
        await trio.sleep(SOON)
        assert holders(net) == homes(*net.routers)


async def test_what_is_withdrawn_is_withdrawn_at_every_router_that_holds_it(autojump_clock: MockClock) -> None:
    """A router that a member told something keeps it, though it belongs elsewhere; and another is told to forget it."""
    async with open_net(4) as net:
        first, second = (router for router in net.routers if router.host.peer not in homes(*net.routers))
        member, later = await net.add_member(first), await net.add_member(second)
        await first.federation.reach_all()
        await second.federation.reach_all()
        await member.announce()
        assert holders(net) == homes(*net.routers) | {first.host.peer}
        client = await net.join_as(member, second)
        assert (await client.provide(Announcement(SERVICE, sequence=2, ttl=0.0))).placed == 4
        assert holders(net) == set()
        assert [await one.find() for one in (member, later)] == [set(), set()]


async def test_a_router_that_could_not_be_told_of_a_withdrawal_is_told_when_it_is_back(
    autojump_clock: MockClock,
) -> None:
    async with open_net(3) as net:
        away, member = await apart(net)
        net.network.heal(away.name)
        await away.federation.reach_all()
        await member.announce()
        await trio.sleep(SOON)
        assert away.host.peer in holders(net)
        other = next(router for router in net.routers if router is not away)
        client = await net.join_as(member, other)
        net.network.block(away.name, *(router.name for router in net.routers if router is not away))
        assert (await client.provide(Announcement(SERVICE, sequence=2, ttl=0.0))).placed == 2
        assert holders(net) == {away.host.peer}
        net.network.heal(away.name)
        await trio.sleep(SOON)
        assert holders(net) == set()


async def test_a_router_that_leaves_hands_its_records_over_and_answers_meanwhile(autojump_clock: MockClock) -> None:
    async with open_net(3, replication=1) as net:
        (home,) = (router for router in net.routers if {router.host.peer} == set(closest(SERVICE, peers_of(net), 1)))
        member, (next_home,) = await net.add_member(home), closest(SERVICE, peers_of(net) - {home.host.peer}, 1)
        await home.federation.reach_all()
        await member.announce()
        assert holders(net) == {home.host.peer}
        await home.directory.leave()
        assert holders(net) == {home.host.peer, next_home}
        assert await member.find() == {member.host.peer}
        await member.announce(sequence=2)  # it holds no other router yet
        assert holders(net) == {home.host.peer, next_home}
        await trio.sleep(SOON)
        assert holders(net) == {home.host.peer, next_home}, "nobody gives back what was handed over"


async def test_a_router_that_leaves_does_not_wait_for_those_that_do_not_answer(autojump_clock: MockClock) -> None:
    async with open_net(2, replication=1) as net:
        first, second = net.routers
        member = await net.add_member(first)
        await first.federation.reach_all()
        for number in range(200):
            await member.announce(bytes([0x12, 0x20, number, *[0] * 31]))
        net.network.freeze(second.name)
        began = trio.current_time()
        await first.directory.leave()
        assert trio.current_time() - began <= LEAVE_TIMEOUT
