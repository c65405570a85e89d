"""Routers that send members away, and what members do then, in virtual time."""

import pytest
import trio
from trio.testing import MockClock

from agentmesh.credentials import ROLE_NODE, Credential
from agentmesh.identity import Identity
from agentmesh.node import Node
from agentmesh.node.catalogue import STEADY_TIME
from agentmesh.node.standing import SHUN_TIME
from agentmesh.protocols.goaway import GOAWAY_ID, GoAway, Reason, Result, send_goaway
from agentmesh.protocols.ping import PING_ID, ping
from agentmesh.router import Router
from agentmesh.router.departures import DEFAULT_RETRY, GRACE, OVERLOADED_RETRY, SHED_INTERVAL
from agentmesh.runtime.config import ConnectionLimits, HostConfig
from agentmesh.runtime.host import open_host
from agentmesh.types import PeerId
from tests.node.fleet import ECHO, Fleet, call, open_fleet, wait_attached

RETRY = GoAway(Reason.DRAINING, 30.0)


async def routers_of(fleet: Fleet, count: int) -> dict[PeerId, tuple[str, Router]]:
    names = [f"r{number}" for number in range(count)]
    return {router.peer: (name, router) for name in names for router in [await fleet.router(name)]}


def small(high: int, low: int) -> HostConfig:
    return HostConfig(connections=ConnectionLimits(high_watermark=high, low_watermark=low, max_per_source=high))


# ── the member ──


async def test_go_away_moves_the_node_to_another_router(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        routers = await routers_of(fleet, 3)
        node = await fleet.node("node", routers=2)
        await wait_attached(node, *(routers[peer][1] for peer in node.routers))
        await trio.sleep(1)
        left, kept = node.routers
        (free,) = set(routers) - set(node.routers)
        router = routers[left][1]
        assert await send_goaway(router.host.open_stream, node.peer, RETRY) is Result.OK
        await trio.sleep(0.2)
        assert node.routers == (kept, free)
        assert node.attachments.goaways.received[Reason.DRAINING] == 1
        assert node.host.session(left) is None  # nothing was under way, so the node has left
        del fleet.plane.routers[kept]
        fleet.network.block("node", routers[kept][0])
        await trio.sleep(28)
        assert left not in node.routers  # shunned
        await wait_attached(node, routers[free][1], router, within=60)


async def test_a_go_away_of_a_router_that_is_not_attached_is_ignored(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        near = await fleet.router("near")
        alice = await fleet.node("alice", routers=1)
        fleet.plane.routers.clear()
        far = await fleet.router("far")
        bob = await fleet.node("bob", routers=1)
        await trio.sleep(1000)  # alice has seen the list
        await call(alice, bob.peer)  # over a router that she is admitted at, and not attached to
        assert alice.host.session(far.peer) is not None
        assert await send_goaway(far.host.open_stream, alice.peer, RETRY) is Result.FAILED
        assert alice.routers == (near.peer,)
        assert sum(alice.attachments.goaways.received.values()) == 0
        await call(alice, bob.peer)


async def test_the_replacement_is_attached_before_the_old_session_closes(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        routers = await routers_of(fleet, 3)
        node = await fleet.node("node", routers=2)
        await trio.sleep(1)
        left = node.routers[0]
        held: list[int] = []
        session = node.host.session(left)
        assert session is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_goaway, routers[left][1].host.open_stream, node.peer, RETRY)
            await session.ended.wait()
            held.append(len(node.routers))
        assert held == [2]


async def test_what_is_under_way_through_a_router_that_drains_finishes(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        routers = await routers_of(fleet, 3)
        alice, bob = [await fleet.node(name, routers=2) for name in ("alice", "bob")]
        await trio.sleep(STEADY_TIME)
        async with await alice.open_stream(bob.peer, ECHO) as stream:
            await stream.send_all(b"before")
            assert await stream.receive_some() == b"before"
            relay = relay_of(alice, bob)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fleet.stop, routers[relay][0])
                for number in range(8):  # four seconds of the five
                    await trio.sleep(0.5)
                    await stream.send_all(b"%d" % number)
                    assert await stream.receive_some() == b"%d" % number
                    await call(alice, bob.peer)  # what is new takes another way
                    assert relay_of(alice, bob) != relay
                await stream.aclose()
        assert trio.current_time() < STEADY_TIME + GRACE


def relay_of(caller: Node, peer: Node) -> PeerId:
    session = caller.host.session(peer.peer)
    assert session is not None
    assert session.address is not None
    assert session.address.circuit is not None
    router = session.address.circuit[0].peer
    assert router is not None
    return router


async def test_calls_go_on_over_the_only_router_for_as_long_as_it_is_there(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        await fleet.router("router")
        alice, bob = await fleet.node("alice"), await fleet.node("bob")
        await call(alice, bob.peer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fleet.stop, "router")
            for _ in range(9):
                await trio.sleep(0.5)
                await call(alice, bob.peer)
        assert alice.routers == ()


@pytest.mark.parametrize("ttl", [0.0, 30.0, 1.0])
async def test_a_router_that_comes_back_is_attached_to_again(autojump_clock: MockClock, ttl: float) -> None:
    async with open_fleet() as fleet:
        await fleet.router("router", shutdown_lease_ttl=ttl)
        node = await fleet.node("node")
        await fleet.stop("router")
        assert node.routers == ()
        again = await fleet.router("again")
        await wait_attached(node, again, within=1.5 * (ttl or DEFAULT_RETRY) + 70)


# ── the router ──


async def test_drain_members_says_draining(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router", shutdown_lease_ttl=12.0)
        peer = await fleet.router("peer", plane=None)
        heard: list[tuple[PeerId, Reason]] = []

        def hear(router: PeerId, reason: Reason) -> None:
            heard.append((router, reason))

        nodes = [await fleet.node(f"n{number}") for number in range(3)]
        for node in nodes:
            node.attachments.goaways.on_sent_away(hear)
        await trio.sleep(1)
        told = set(router.members.present)
        assert told == {node.peer for node in nodes}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fleet.stop, "router")
            await trio.sleep(0.01)
            assert router.members.is_closed
            assert router.members.present == ()  # forgotten, at once
        assert router.departures.sent[Reason.DRAINING, Result.OK] == 3
        assert fleet.plane.lease_ttls[-1] == 12.0
        assert heard == [(router.peer, Reason.DRAINING)] * 3
        for node in nodes:
            assert node.routers == (peer.peer,)
            assert node.attachments.catalogue.deadline > trio.current_time() + 12.0 - GRACE - 1


async def test_nobody_is_admitted_by_a_router_that_stops(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router")
        first = await fleet.node("first")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fleet.stop, "router")
            await trio.sleep(1)
            late = await fleet.node("late", ready_timeout=1.0)
            assert late.routers == ()
            assert late.peer not in router.host.admissions
            assert first.peer in router.host.admissions
            nursery.cancel_scope.cancel()


async def test_a_peer_that_does_not_know_the_protocol_is_just_closed(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router")
        async with open_host(identity=Identity.generate(), transports=[fleet.network.transport("old")]) as old:
            session = await old.connect(router.peer, router.host.addresses)
            router.members.admit(old.peer, Credential(b"", old.peer, ROLE_NODE, {}, 1e12))
            began = trio.current_time()
            await fleet.stop("router")
            assert trio.current_time() - began == pytest.approx(GRACE, abs=0.1)
            assert not session.is_open
            assert router.departures.sent[Reason.DRAINING, Result.UNSUPPORTED] == 1


@pytest.mark.parametrize("members", [9, 10])
async def test_shed_if_overloaded(autojump_clock: MockClock, members: int) -> None:
    """At the high mark just as many members as take it to the low one, other routers counted in and never sent; below
    it nobody."""
    async with open_fleet() as fleet:
        router = await fleet.router("router", host=small(11, 7))
        nodes = [await fleet.node(f"n{number}") for number in range(members)]
        other = await fleet.router("other")
        await trio.sleep(SHED_INTERVAL + 0.5)
        sent = router.departures.sent[Reason.OVERLOADED, Result.OK]
        assert sent == (0 if members == 9 else members + 1 - 7)
        assert other.peer in router.federation.peers
        await trio.sleep(SHED_INTERVAL)
        assert router.departures.sent[Reason.OVERLOADED, Result.OK] == sent  # once
        assert len(router.members.present) == members - sent
        gone = [node for node in nodes if node.routers == (other.peer,)]
        assert len(gone) == sent
        for node in gone:
            assert node.attachments.goaways.received[Reason.OVERLOADED] == 1
            assert node.host.session(router.peer) is None


async def test_a_router_that_is_full_puts_nobody_out_for_a_newcomer(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        full = await fleet.router("full", host=small(3, 2))
        for number in range(3):
            await fleet.node(f"n{number}")
        late = await fleet.node("late", ready_timeout=1.0)
        assert late.routers == ()
        assert len(full.host.connections) == 3  # nobody was put out for it
        other = await fleet.router("other")
        await wait_attached(late, other, within=30)


async def test_a_node_without_another_router_comes_back_after_a_minute(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router", host=small(4, 2))
        nodes = [await fleet.node(f"n{number}") for number in range(4)]
        await trio.sleep(SHED_INTERVAL + GRACE + 1)
        assert sum(node.routers == () for node in nodes) == 2
        assert OVERLOADED_RETRY == SHUN_TIME
        await trio.sleep(100)
        assert len(router.members.present) >= 2


async def test_a_stranger_cannot_send_a_node_away(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router")
        listening = await fleet.node("node", listen=(router.host.addresses[0].without_peer().parse("/memory/0"),))
        async with open_host(identity=Identity.generate(), transports=[fleet.network.transport("eve")]) as eve:
            await eve.connect(listening.peer, listening.host.addresses[:1])
            assert await send_goaway(eve.open_stream, listening.peer, RETRY) is Result.FAILED
            stream = await eve.open_stream(listening.peer, PING_ID)
            assert await ping(stream) >= 0
            assert listening.routers == (router.peer,)
            assert GOAWAY_ID in listening.host.registry.ids
