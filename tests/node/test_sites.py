"""Members whose routers are not the same, in virtual time."""

import trio
from trio.testing import MockClock

from tests.node.fleet import call, open_fleet


async def test_nodes_on_different_routers_reach_each_other(autojump_clock: MockClock) -> None:
    """Two routers labelled by site, and a member of each. The one that calls is admitted at the other's router first,
    and then connected to it, not attached."""
    async with open_fleet() as fleet:
        here = await fleet.router("here", labels={"site": "a"})
        there = await fleet.router("there", labels={"site": "b"})
        alice = await fleet.node("alice", router_selector={"site": "a"})
        bob = await fleet.node("bob", router_selector={"site": "b"})
        await trio.sleep(1)
        assert (alice.routers, bob.routers) == ((here.peer,), (there.peer,))
        assert here.federation.peers == {there.peer}
        await call(bob, alice.peer)
        assert {here.peer, there.peer} <= set(bob.host.connections.peers)
        assert bob.routers == (there.peer,)
        assert bob.peer in here.members.present
        assert there.peer not in alice.host.connections.peers
        assert alice.routers == (here.peer,)


async def test_idle_nodes_hold_only_their_routers(autojump_clock: MockClock) -> None:
    """Two routers and two nodes that want two each: every router has just three peers, and every node two."""
    async with open_fleet() as fleet:
        routers = [await fleet.router(f"r{number}") for number in range(2)]
        nodes = [await fleet.node(f"n{number}") for number in range(2)]
        await trio.sleep(3600)
        for node in nodes:
            assert set(node.host.connections.peers) == {router.peer for router in routers}
        for router in routers:
            assert len(router.host.connections.peers) == router.host.statistics().admitted == 3


async def test_failover_updates_relay(autojump_clock: MockClock) -> None:
    """A router dies; the member is reachable by the relay of another, that it learned of from the control plane."""
    async with open_fleet() as fleet:
        await fleet.router("first")
        alice, bob = [await fleet.node(name, routers=1) for name in ("alice", "bob")]
        await trio.sleep(100)
        second = await fleet.router("second")
        fleet.network.freeze("first")
        with trio.fail_after(200):
            while {*alice.routers, *bob.routers} != {second.peer}:  # noqa: ASYNC110 - seen from outside
                await trio.sleep(1)
        assert all(str(second.peer) in str(address) for address in alice.addresses)
        await call(bob, alice.peer)
