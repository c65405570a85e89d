"""Records that could not be placed at once: they get where they belong, as soon as that can be."""

import pytest
import trio
from trio.testing import MockClock

from agentmesh.protocols.directory import Answer, Placement
from agentmesh.protocols.directory.lookup import LOOKUP_TIMEOUT
from agentmesh.protocols.directory.moving import MOVE_INTERVAL, RETRY_INTERVAL
from agentmesh.protocols.directory.placement import closest
from agentmesh.types import PeerId
from tests.protocols.directory.net import SERVICE, Member, Net, Router, open_net

SOON = RETRY_INTERVAL + LOOKUP_TIMEOUT + MOVE_INTERVAL


def holders(net: Net) -> set[PeerId]:
    now = trio.current_time()
    return {router.host.peer for router in net.routers if router.directory.store.find(SERVICE, 9, now)}


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
