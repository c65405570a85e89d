"""Routers join each other, whoever comes and goes, in virtual time."""

import attrs
import trio
from trio.testing import MockClock

from agentmesh.abc import Admission
from agentmesh.credentials import SigningKey
from agentmesh.protocols.auth import Result
from agentmesh.router import Router
from agentmesh.router.federation import JOIN_INTERVAL, STEADY_INTERVAL
from agentmesh.runtime.config import ConnectionLimits, HostConfig
from agentmesh.testing import Conditions
from agentmesh.types import PeerId
from tests.membership.plane import Plane
from tests.node.fleet import Fleet, open_fleet


async def routers_of(fleet: Fleet, count: int) -> list[Router]:
    return [await fleet.router(f"r{number}") for number in range(count)]


def are_joined(*routers: Router) -> bool:
    peers = frozenset(router.peer for router in routers)
    return all(router.federation.peers == peers - {router.peer} for router in routers)


async def wait_joined(*routers: Router, within: float) -> float:
    began = trio.current_time()
    with trio.fail_after(within):
        while not are_joined(*routers):  # noqa: ASYNC110 - seen from outside
            await trio.sleep(0.05)
    return trio.current_time() - began


async def test_every_router_has_a_session_to_every_other_and_one_is_enough(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        routers = await routers_of(fleet, 5)
        await trio.sleep(1.0)
        assert are_joined(*routers)
        assert sum(len(router.host.connections) for router in routers) == 2 * 5 * 4 // 2
        assert sum(router.handshakes.results[Result.OK] for router in routers) == 5 * 4 // 2
        for router in routers:
            levels = {router.host.admissions.level(other.peer) for other in routers if other is not router}
            assert levels == {Admission.ROUTER}


async def test_a_router_that_is_listed_and_not_there_is_tried_every_two_seconds(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        one, other = await routers_of(fleet, 2)
        await wait_joined(one, other, within=1)
        await fleet.stop("r1")
        await trio.sleep(0.1)
        assert one.federation.peers == frozenset()
        before = fleet.plane.calls["info"]
        await trio.sleep(10 * JOIN_INTERVAL)
        assert fleet.plane.calls["info"] - before == 10
        del fleet.plane.routers[other.peer]  # its lease has run out
        await trio.sleep(JOIN_INTERVAL)
        before = fleet.plane.calls["info"]
        await trio.sleep(10 * STEADY_INTERVAL)
        assert fleet.plane.calls["info"] - before == 10


async def test_a_lost_session_is_dialled_again_soon(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        routers = await routers_of(fleet, 3)
        await wait_joined(*routers, within=1)
        fleet.network.reset("r0", "r1")
        await trio.sleep(0.01)
        assert await wait_joined(*routers, within=JOIN_INTERVAL) < JOIN_INTERVAL
        await trio.sleep(STEADY_INTERVAL + 1)  # both had dialled at once
        assert are_joined(*routers)
        assert [len(router.host.connections) for router in routers] == [2, 2, 2]


async def test_who_joins_and_who_leaves_is_told(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        one = await fleet.router("r0")
        told: list[tuple[str, PeerId]] = []
        one.federation.on_join(lambda peer: told.append(("joined", peer)))
        one.federation.on_leave(lambda peer: told.append(("left", peer)))
        other = await fleet.router("r1")
        await fleet.node("node")
        await trio.sleep(1)
        await fleet.stop("r1")
        await trio.sleep(1)
        assert told == [("joined", other.peer), ("left", other.peer)]


async def test_a_renewed_credential_is_shown_to_all_the_others(autojump_clock: MockClock) -> None:
    async with open_fleet(Plane(ttl=600.0)) as fleet:
        routers = await routers_of(fleet, 3)
        for _ in range(20):
            await trio.sleep(100)
            assert are_joined(*routers)
        assert all(len(router.host.connections) == 2 for router in routers)


async def test_routers_that_do_not_honour_each_other_are_not_joined(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        one = await fleet.router("r0")
        stranger = await fleet.router("r1", plane=Plane())
        await trio.sleep(100)
        assert one.federation.peers == stranger.federation.peers == frozenset()
        assert not one.federation.is_whole
        assert stranger.handshakes.results[Result.UNAUTHORIZED] > 10


async def test_a_member_that_is_listed_as_a_router_is_none(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("r0")
        node = await fleet.node("node")
        listed = fleet.plane.routers[router.peer]
        fleet.plane.routers[node.peer] = attrs.evolve(listed, peer=node.peer, addresses=node.addresses)
        await trio.sleep(100)
        assert router.federation.peers == frozenset()


async def test_a_new_key_is_learned_and_the_routers_joined_again(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        one = await fleet.router("r0")
        fleet.plane.keys.append(SigningKey.generate())
        other = await fleet.router("r1")
        assert await wait_joined(one, other, within=15) > 0


async def test_a_router_that_joins_is_never_trimmed(autojump_clock: MockClock) -> None:
    limits = HostConfig(connections=ConnectionLimits(high_watermark=4, low_watermark=1))
    async with open_fleet() as fleet:
        routers = await routers_of(fleet, 2)
        small = await fleet.router("small", host=limits)
        await wait_joined(*routers, small, within=1)
        for number in range(8):
            await fleet.node(f"n{number}", routers=3, ready_timeout=1.0)
        assert are_joined(*routers, small)


async def test_a_banned_router_is_not_dialled(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        one = await fleet.router("r0")
        other = await fleet.router("r1", plane=Plane())
        fleet.plane.banned.add(other.peer)
        await trio.sleep(STEADY_INTERVAL)
        assert one.federation.is_whole


async def test_a_directory_has_its_routers_at_once(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        one = await fleet.router("r0")
        await trio.sleep(1)
        fleet.network.set_conditions("r0", "r1", Conditions(latency=0.1))
        other = await fleet.router("r1")
        assert one.federation.routers == frozenset()
        async with trio.open_nursery() as nursery:  # two that ask at once share an attempt
            nursery.start_soon(one.federation.refresh)
            await trio.sleep(0.01)
            nursery.start_soon(one.federation.reach_all)
        assert one.federation.routers == {other.peer}
        assert await one.federation.refresh() is False  # that was a moment ago
        await trio.sleep(1)
        assert await one.federation.refresh()
        fleet.plane.is_away = True
        await trio.sleep(2)
        assert await one.federation.refresh() is False
