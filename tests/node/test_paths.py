"""How a node reaches another: over the routers that it holds, then over others; and what is said when none does."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from agentmesh.errors import DialError, NotConnectedError
from agentmesh.identity import Identity
from agentmesh.node import Node
from agentmesh.protocols.auth import Result
from agentmesh.protocols.relay import Relay, RelayClient, reserve
from agentmesh.router import Router
from agentmesh.runtime.config import HostConfig
from agentmesh.runtime.host import open_host
from agentmesh.runtime.registry import Protocol
from agentmesh.testing import cancel_at_every_await, footprint, wait_footprint
from agentmesh.transports.circuit import CircuitTransport
from tests.membership.plane import Plane, wall_clock
from tests.node.fleet import ANY, ECHO, Fleet, call, echo, open_fleet

SYNC = 1000.0  # seconds in which a node has read the control plane's list once more


def handshakes(router: Router) -> int:
    return router.handshakes.results[Result.OK]


@attrs.frozen
class Apart:
    """Two nodes that hold one router each, and not the same."""

    fleet: Fleet
    near: Router
    far: Router
    alice: Node
    bob: Node


@asynccontextmanager
async def two_sites(ttl: float = 24 * 3600.0) -> AsyncGenerator[Apart]:
    async with open_fleet(Plane(ttl=ttl)) as fleet:
        near = await fleet.router("near")
        alice = await fleet.node("alice", routers=1)
        del fleet.plane.routers[near.peer]
        far = await fleet.router("far")
        bob = await fleet.node("bob", routers=1)
        await near_again(fleet, near)
        yield Apart(fleet, near, far, alice, bob)


async def near_again(fleet: Fleet, near: Router) -> None:
    await trio.sleep(SYNC)  # it renews its lease, and the nodes look at the list again
    assert len(fleet.plane.routers) == 2


async def test_nodes_on_different_routers_reach_each_other(autojump_clock: MockClock) -> None:
    async with two_sites() as apart:
        assert (apart.alice.routers, apart.bob.routers) == ((apart.near.peer,), (apart.far.peer,))
        await call(apart.bob, apart.alice.peer)
        assert {s.peer for s in apart.bob.host.connections} == {apart.near.peer, apart.far.peer, apart.alice.peer}
        assert {s.peer for s in apart.alice.host.connections} == {apart.near.peer, apart.bob.peer}
        assert apart.bob.routers == (apart.far.peer,)  # connected to both, attached to one
        assert apart.near.relay.statistics().opened == 1
        assert apart.far.relay.statistics().opened == 0


async def test_a_transit_router_is_asked_for_admission_once(autojump_clock: MockClock) -> None:
    async with two_sites() as apart:
        carol = await apart.fleet.node("carol", routers=2)
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(call, apart.bob, apart.alice.peer)
        await call(apart.bob, carol.peer)
        assert apart.near.peer in apart.bob.attachments.admissions
        assert handshakes(apart.near) == 3


async def test_a_transit_router_is_shown_a_new_credential_too(autojump_clock: MockClock) -> None:
    async with two_sites(ttl=1200.0) as apart:
        async with await apart.bob.open_stream(apart.alice.peer, ECHO) as stream:
            for _ in range(5):
                await trio.sleep(500)
                await stream.send_all(b"still here")
                assert await stream.receive_some() == b"still here"
        assert apart.near.host.admissions.expires_at(apart.bob.peer) == apart.bob.membership.credential.expires_at


async def test_the_routers_that_are_held_are_asked_first(autojump_clock: MockClock) -> None:
    async with two_sites() as apart:
        carol = await apart.fleet.node("carol", routers=1)
        router, other = (apart.near, apart.far) if carol.routers == (apart.near.peer,) else (apart.far, apart.near)
        neighbour = apart.alice if router is apart.near else apart.bob
        before = handshakes(other)
        await call(carol, neighbour.peer)
        assert handshakes(other) == before
        assert {session.peer for session in carol.host.connections} == {router.peer, neighbour.peer}


async def test_other_routers_are_asked_in_groups_of_what_a_host_dials_at_once(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        routers, members = list[Router](), list[Node]()
        for number in range(4):
            routers.append(await fleet.router(f"r{number}"))
            members.append(await fleet.node(f"n{number}", routers=1, host=HostConfig(max_dial_addresses=1)))
            fleet.plane.routers.clear()
        await trio.sleep(SYNC)
        for member in members[1:]:
            await call(members[0], member.peer)
        assert [len(router.members.present) for router in routers] == [1, 2, 2, 2]


async def test_callers_of_one_peer_share_one_circuit(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router")
        alice, bob = await fleet.node("alice"), await fleet.node("bob")
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(call, alice, bob.peer)
        await call(alice, bob.peer)
        assert router.relay.statistics().opened == 1


async def test_two_that_call_each_other_at_once_both_succeed(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        await fleet.router("router")
        alice, bob = await fleet.node("alice"), await fleet.node("bob")
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call, alice, bob.peer)
                nursery.start_soon(call, bob, alice.peer)


async def test_a_node_without_a_router_is_not_connected(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        await fleet.router("router")
        alice, bob = await fleet.node("alice"), await fleet.node("bob")
        await fleet.stop("router")
        with pytest.raises(DialError):
            await call(alice, bob.peer)
        await trio.sleep(1)
        with pytest.raises(NotConnectedError, match="attached to no router"):
            await call(alice, bob.peer)


@pytest.mark.parametrize("stranger", [False, True])
async def test_a_peer_that_is_not_there_is_a_dial_error_at_once(autojump_clock: MockClock, stranger: bool) -> None:
    async with two_sites() as apart:
        if stranger:
            peer = Identity.generate().peer
        else:
            await call(apart.bob, apart.alice.peer)
            peer = apart.alice.peer
            await apart.fleet.stop("alice")
        began = trio.current_time()
        with pytest.raises(DialError, match="NO_RESERVATION") as caught:
            await call(apart.bob, peer)
        assert not isinstance(caught.value, NotConnectedError)
        assert trio.current_time() - began < 1


async def test_a_relay_that_is_none_of_our_routers_is_left_alone(autojump_clock: MockClock) -> None:
    """No handshake: somebody else's relay does not know what that is."""
    async with open_fleet() as fleet:
        await fleet.router("router")
        alice = await fleet.node("alice")
        relay = Relay(is_admitted=lambda _: True, wall_clock=wall_clock)
        client = RelayClient()
        circuits = CircuitTransport(client.connect, client.open_circuit)
        async with (
            open_host(
                identity=Identity.generate(),
                transports=[fleet.network.transport("relay")],
                protocols=[relay.protocol()],
                listen=[ANY],
            ) as plain,
            open_host(
                identity=Identity.generate(),
                transports=[fleet.network.transport("bob"), circuits],
                protocols=[Protocol(ECHO, echo), client.protocol(circuits.incoming)],
            ) as bob,
        ):
            through = plain.addresses[0] / "p2p-circuit"
            await bob.connect(plain.peer, plain.addresses)
            async with bob.listening(through):
                await reserve(bob, plain.peer)
                await alice.host.connect(bob.peer, [through.with_peer(bob.peer)])
                await call(alice, bob.peer)


async def test_a_dead_router_on_the_list_does_not_hold_up_a_call(autojump_clock: MockClock) -> None:
    async with two_sites() as apart:
        await apart.fleet.router("dead")
        await trio.sleep(SYNC)
        apart.fleet.network.freeze("dead")
        began = trio.current_time()
        await call(apart.bob, apart.alice.peer)
        assert trio.current_time() - began < 1


async def test_a_call_that_is_cancelled_anywhere_leaves_nothing(autojump_clock: MockClock) -> None:
    async with two_sites() as apart:
        before = footprint()

        async def check() -> None:
            for node in (apart.alice, apart.bob):
                for session in node.host.connections:
                    if session.peer not in node.routers:
                        await session.aclose()
            await trio.sleep(1)
            await wait_footprint(before)
            assert len(apart.bob.attachments.admissions) == 1
            assert apart.near.relay.statistics().circuits == 0
            assert apart.bob.host.statistics().dialing == 0

        async def operation() -> None:
            await call(apart.bob, apart.alice.peer)

        assert await cancel_at_every_await(operation, check=check) > 3
