"""Nodes and their routers through everything that happens to either, in virtual time."""

import attrs
import pytest
import trio
from trio.testing import MockClock

from agentmesh.credentials import SigningKey
from agentmesh.errors import NotConnectedError
from agentmesh.node import Node
from agentmesh.node.attachments import ATTACH_TIMEOUT, RESERVATION_RETRY
from agentmesh.node.catalogue import STEADY_TIME
from agentmesh.protocols.auth import Result
from agentmesh.protocols.relay import BookLimits, CircuitLimits, RelayConfig
from agentmesh.router import Router
from agentmesh.testing import Conditions
from agentmesh.types import PeerId
from tests.membership.plane import Plane
from tests.node.fleet import ANY, ECHO, Fleet, call, open_fleet, wait_attached


def handshakes(router: Router) -> int:
    return router.handshakes.results[Result.OK]


def held(node: Node) -> set[PeerId]:
    return set(node.routers)


def small_relay(max_reservations: int, ttl: float = 600.0) -> RelayConfig:
    return RelayConfig(BookLimits(max_reservations=max_reservations, reservation_ttl=ttl), CircuitLimits())


async def routers_of(fleet: Fleet, count: int) -> list[Router]:
    return [await fleet.router(f"r{number}") for number in range(count)]


# ── the start ──


async def test_a_node_attaches_to_as_many_routers_as_it_wants_and_holds_no_other(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        routers = await routers_of(fleet, 4)
        node = await fleet.node("node", routers=2)
        await trio.sleep(100)
        assert len(node.routers) == 2
        assert {session.peer for session in node.host.connections} == set(node.routers)
        assert sorted(len(router.members.present) for router in routers) == [0, 0, 1, 1]
        assert {address.parts[1][1] for address in node.addresses} == {str(peer) for peer in node.routers}
        assert all(address.peer == node.peer for address in node.addresses)


async def test_start_is_ready_once_one_router_admits_the_node(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        slow, quick = await routers_of(fleet, 2)
        fleet.network.set_conditions("node", "r0", Conditions(latency=1.0))
        began = trio.current_time()
        node = await fleet.node("node", routers=2)
        assert (node.routers, trio.current_time() - began < 0.1) == ((quick.peer,), True)
        await wait_attached(node, slow, quick)
        assert trio.current_time() - began < ATTACH_TIMEOUT  # both were dialled at once


async def test_start_authenticates_each_router_once(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router", listen=3)
        node = await fleet.node("node")
        await trio.sleep(100)
        assert len(node.addresses) == 3
        assert handshakes(router) == 1
        assert len(router.host.connections) == 1


async def test_a_mesh_without_routers_is_looked_at_again_less_and_less_often(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        began = trio.current_time()
        node = await fleet.node("node", ready_timeout=5.0)
        assert (node.routers, trio.current_time() - began) == ((), 5.0)
        with pytest.raises(NotConnectedError):
            await node.open_stream(node.peer, ECHO)
        await trio.sleep(600)
        assert 12 <= fleet.plane.calls["info"] <= 17
        router = await fleet.router("router")
        assert await wait_attached(node, router, within=70) <= 67


async def test_a_control_plane_that_comes_back_is_asked_again(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router")
        record = fleet.plane.routers.pop(router.peer)
        node = await fleet.node("node", ready_timeout=1.0)
        fleet.plane.is_away = True
        fleet.plane.routers[router.peer] = record
        await trio.sleep(100)
        assert held(node) == set()
        fleet.plane.is_away = False
        await wait_attached(node, router, within=67)


async def test_nothing_hangs_when_all_routers_refuse(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        foreign = Plane()
        routers = [await fleet.router(f"r{number}", plane=foreign) for number in range(3)]
        node = await fleet.node("node", ready_timeout=5.0)
        with pytest.raises(NotConnectedError):
            await node.open_stream(routers[0].peer, ECHO)
        await trio.sleep(1200)
        assert not node.routers
        refused = [router.handshakes.results[Result.UNAUTHORIZED] for router in routers]
        assert all(12 <= count <= 30 for count in refused)  # six attempts, five minutes, six attempts …
        assert len(node.host.connections) == 0
        began = trio.current_time()
        await fleet.stop("node")
        assert trio.current_time() - began < 5


async def test_a_router_that_is_none_is_not_attached_to(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        member = await fleet.node("member", listen=(ANY,), ready_timeout=0.0)
        router = await fleet.router("router")
        fleet.plane.routers[member.peer] = attrs.evolve(
            fleet.plane.routers[router.peer], peer=member.peer, addresses=member.host.addresses
        )
        node = await fleet.node("node")
        await trio.sleep(100)
        assert node.routers == (router.peer,)
        assert node.host.session(member.peer) is None


async def test_a_router_that_does_not_answer_is_given_up(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        dead, alive = await routers_of(fleet, 2)
        fleet.network.freeze("r0")
        node = await fleet.node("node", routers=1)
        await wait_attached(node, alive, within=ATTACH_TIMEOUT + 1)
        assert dead.peer not in node.routers


# ── loss ──


async def test_router_drop_is_redialed(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router")
        node = await fleet.node("node")
        await trio.sleep(STEADY_TIME)
        fleet.network.reset("node", "router")
        await trio.sleep(0.1)
        assert held(node) == {router.peer}
        assert handshakes(router) == 2
        fleet.network.reset("node", "router")  # and once more, soon
        await trio.sleep(1.9)
        assert held(node) == set()
        await trio.sleep(1.2)  # half as long again at most: see below
        assert held(node) == {router.peer}


async def test_nodes_that_lose_a_router_together_do_not_all_come_back_at_once(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router")
        for number in range(20):
            await fleet.node(f"node-{number}")
        for number in range(20):
            fleet.network.reset(f"node-{number}", "router")
        began, times = trio.current_time(), list[float]()
        while len(times) < 20:
            await trio.sleep(0.01)
            times += [trio.current_time() - began] * (len(router.host.connections) - len(times))
        assert 2.0 <= times[0] < times[-1] <= 3.1
        assert len(set(times)) >= 10


async def test_a_lost_router_is_replaced_at_once(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        routers = {router.peer: name for name in ("r0", "r1", "r2") for router in [await fleet.router(name)]}
        node = await fleet.node("node", routers=2)
        await trio.sleep(STEADY_TIME)
        kept, left = node.routers
        (free,) = set(routers) - set(node.routers)
        await fleet.stop(routers[left])
        await trio.sleep(0.1)
        assert set(node.routers) == {kept, free}


async def test_a_lost_router_is_replaced_while_the_control_plane_is_away(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        await fleet.router("r0")
        node = await fleet.node("node", routers=1)
        other = await fleet.router("r1")
        await trio.sleep(1000)  # it has seen the list
        fleet.plane.is_away, fleet.plane.patience = True, 180.0
        await fleet.stop("r0")
        assert await wait_attached(node, other) < 1


async def test_a_router_that_vanished_is_replaced_by_the_ping_deadline(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        routers = {router.peer: (name, router) for name in ("r0", "r1") for router in [await fleet.router(name)]}
        node = await fleet.node("node", routers=1)
        (held,) = node.routers
        name, _ = routers.pop(held)
        ((_, other),) = routers.values()
        await trio.sleep(STEADY_TIME)
        fleet.network.freeze(name)
        assert await wait_attached(node, other) <= 46


async def test_readiness_is_that_of_now(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router")
        node = await fleet.node("node")
        await node.wait_ready()
        await trio.sleep(STEADY_TIME)
        fleet.network.block("node", "router")
        await trio.sleep(60)
        assert not node.routers
        with trio.move_on_after(1) as waiting:
            await node.wait_ready()
        assert waiting.cancelled_caught
        fleet.network.heal("node", "router")
        await node.wait_ready()
        assert node.routers == (router.peer,)


async def test_router_disconnect_clears_authenticated_session(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router")
        node = await fleet.node("node")
        admissions = node.attachments.admissions
        assert router.peer in admissions
        assert node.peer in router.host.admissions
        await trio.sleep(STEADY_TIME)
        fleet.network.block("node", "router")
        await trio.sleep(60)
        assert router.peer not in admissions
        assert len(admissions) == 0
        assert len(router.host.admissions) == 0
        fleet.network.heal("node", "router")
        await wait_attached(node, router)
        assert handshakes(router) == 2


# ── reservations ──


async def test_a_reservation_that_was_refused_is_asked_for_again(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router", relay=small_relay(1))
        first = await fleet.node("first")
        second = await fleet.node("second", ready_timeout=1.0)
        assert (set(first.routers), set(second.routers), len(second.addresses)) == ({router.peer}, set(), 0)
        await call(second, first.peer)  # it cannot be called, but it calls
        await fleet.stop("first")
        assert await wait_attached(second, router) <= 1.5 * RESERVATION_RETRY


async def test_a_reservation_that_was_lost_is_regained(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router", relay=small_relay(1))
        first = await fleet.node("first")
        router.relay.drop(first.peer)
        await fleet.node("second")
        await trio.sleep(500)
        assert not first.routers  # its renewal was refused
        await fleet.stop("second")
        assert await wait_attached(first, router) <= RESERVATION_RETRY
        assert len(first.addresses) == 1


async def test_reservations_are_renewed_for_as_long_as_the_node_is_up(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router", relay=small_relay(10, ttl=300.0))
        node = await fleet.node("node")
        for _ in range(20):
            await trio.sleep(100)
            assert router.relay.statistics().reservations == 1
            assert node.routers == (router.peer,)


# ── credentials ──


async def test_members_stay_admitted_across_credential_refresh(autojump_clock: MockClock) -> None:
    """Circuits work past the expiry of the credential that opened the gate, standing ones and new ones."""
    async with open_fleet(Plane(ttl=600.0)) as fleet:
        router = await fleet.router("router")
        alice, bob = await fleet.node("alice"), await fleet.node("bob")
        first = alice.membership.credential
        async with await alice.open_stream(bob.peer, ECHO) as stream:
            for _ in range(10):
                await trio.sleep(200)
                await stream.send_all(b"still here")
                assert await stream.receive_some() == b"still here"
                assert alice.peer in router.host.admissions
                assert router.relay.statistics().reservations == 2
        assert alice.membership.credential.expires_at > first.expires_at + 1000
        carol = await fleet.node("carol")
        await call(carol, alice.peer)
        assert router.handshakes.results[Result.UNAUTHORIZED] == 0


async def test_refresh_enrollment_readmits_connected_routers(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        routers = await routers_of(fleet, 2)
        node = await fleet.node("node")
        await wait_attached(node, *routers)
        fleet.plane.refuses.add(node.peer)
        assert await node.membership.renew()
        assert fleet.plane.calls["enroll"] == 4
        await trio.sleep(1)
        assert [handshakes(router) for router in routers] == [3, 2]  # of the other router too
        for router in routers:
            assert router.host.admissions.expires_at(node.peer) == node.membership.credential.expires_at


async def test_a_router_that_does_not_admit_the_new_credential_is_left(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        behind = Plane(keys=list(fleet.plane.keys))  # it will not hear of the next key
        routers = {router.peer: router for router in [await fleet.router("r0", plane=behind)]}
        node = await fleet.node("node", routers=1)
        assert set(node.routers) == set(routers)
        fleet.plane.keys.append(SigningKey.generate())
        other = await fleet.router("r1")
        await trio.sleep(100)
        assert set(node.routers) == set(routers)
        assert await node.membership.renew()
        assert await wait_attached(node, other) <= 20
        assert {session.peer for session in node.host.connections} == {other.peer}


async def test_a_routers_own_credential_is_asked_for_again_before_it_ends(autojump_clock: MockClock) -> None:
    async with open_fleet(Plane(ttl=3600.0)) as fleet:
        router = await fleet.router("router")
        fleet.plane.ttl = 7 * 24 * 3600.0  # of the node's: it is not renewed in the time of this test
        node = await fleet.node("node")
        await trio.sleep(3610)
        assert handshakes(router) == 2
        assert node.routers == (router.peer,)


async def test_a_router_whose_credential_is_not_honoured_any_more_is_left(autojump_clock: MockClock) -> None:
    async with open_fleet(Plane(ttl=3600.0)) as fleet:
        behind = Plane(keys=list(fleet.plane.keys), ttl=3600.0)
        router = await fleet.router("router", plane=behind)
        fleet.plane.ttl = 7 * 24 * 3600.0
        node = await fleet.node("node")
        fleet.plane.keys.append(SigningKey.generate())
        behind.keys.insert(0, fleet.plane.keys[-1])  # the router honours the new key, and has a credential of the old
        await trio.sleep(1000)  # the node has read the keys, which vouch for each other
        del fleet.plane.keys[0]
        await trio.sleep(3000)
        assert handshakes(router) > 2
        assert not node.routers
