"""Calls while one of the caller's routers drains, in virtual time."""

import trio
from trio.testing import MockClock

from agentmesh.node import Node
from agentmesh.node.catalogue import STEADY_TIME
from agentmesh.router.departures import GRACE
from agentmesh.testing import Conditions
from agentmesh.types import PeerId
from tests.node.fleet import ECHO, Fleet, call, open_fleet


def relays_of(caller: Node, peer: PeerId) -> set[PeerId | None]:
    """The routers by which new streams to a member go."""
    session = caller.host.session(peer)
    circuit = session.address.circuit if session and session.address else None
    return {circuit[0].peer} if circuit else set()


async def two_that_share_one(fleet: Fleet) -> tuple[Node, Node, PeerId]:
    """Two members of two routers each, of which they have just one in common."""
    shared, left = await fleet.router("shared"), await fleet.router("left")
    alice = await fleet.node("alice", routers=2)
    await trio.sleep(1)
    listed = fleet.plane.routers.pop(left.peer)
    right = await fleet.router("right")
    bob = await fleet.node("bob", routers=2)
    await trio.sleep(5)
    fleet.plane.routers[left.peer] = listed
    assert (set(alice.routers), set(bob.routers)) == ({shared.peer, left.peer}, {shared.peer, right.peer})
    return alice, bob, shared.peer


async def test_no_new_way_leads_through_a_router_that_drains(autojump_clock: MockClock) -> None:
    """Neither has told the directory yet that it is not there any more, and the other's second router is none of its
    own: where the other is said to be at first is at the router that goes."""
    async with open_fleet() as fleet:
        alice, bob, shared = await two_that_share_one(fleet)
        fleet.network.set_conditions("alice", "right", Conditions(latency=0.3))
        await trio.sleep(STEADY_TIME)
        await call(alice, bob.peer)
        assert relays_of(alice, bob.peer) == {shared}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fleet.stop, "shared")
            with trio.fail_after(1):
                while shared in alice.routers:  # noqa: ASYNC110 - seen from outside
                    await trio.sleep(0.001)
            until = trio.current_time() + GRACE + 1
            while trio.current_time() < until:
                await call(alice, bob.peer)
                assert shared not in relays_of(alice, bob.peer)
                await trio.sleep(0.01)


async def test_a_stream_that_is_opened_through_a_router_that_drains_has_time_to_end(autojump_clock: MockClock) -> None:
    """Bytes in flight at the moment that the router says so, and for a while after it, arrive, both ways."""
    async with open_fleet() as fleet:
        alice, bob, shared = await two_that_share_one(fleet)
        await trio.sleep(STEADY_TIME)
        async with await alice.open_stream(bob.peer, ECHO) as stream:
            assert relays_of(alice, bob.peer) == {shared}
            sent, received = bytearray(), bytearray()

            async def send() -> None:
                until = trio.current_time() + GRACE - 1
                while trio.current_time() < until:
                    part = len(sent).to_bytes(8, "big") * 512
                    sent.extend(part)
                    await stream.send_all(part)
                    await trio.sleep(0.01)
                await stream.send_eof()

            async def receive() -> None:
                while data := await stream.receive_some():
                    received.extend(data)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(send)
                nursery.start_soon(receive)
                await trio.sleep(0.5)
                nursery.start_soon(fleet.stop, "shared")
        assert len(sent) > 1024 * 1024
        assert received == sent


async def test_a_caller_in_transit_leaves_a_router_that_drains_too(autojump_clock: MockClock) -> None:
    """It is not attached there, so it heeds nothing else of what the router says."""
    async with open_fleet() as fleet:
        await fleet.router("here", labels={"site": "a"})
        there = {name: await fleet.router(name, labels={"site": "b"}) for name in ("one", "two")}
        alice = await fleet.node("alice", router_selector={"site": "a"})
        bob = await fleet.node("bob", routers=1, router_selector={"site": "b"})
        await trio.sleep(STEADY_TIME)
        await call(alice, bob.peer)
        (left,) = [name for name, router in there.items() if router.peer in bob.routers]
        assert relays_of(alice, bob.peer) == {there[left].peer}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fleet.stop, left)
            await trio.sleep(0.2)
            until = trio.current_time() + GRACE + 1
            while trio.current_time() < until:
                await call(alice, bob.peer)
                assert there[left].peer not in relays_of(alice, bob.peer)
                await trio.sleep(0.01)
        assert sum(alice.attachments.goaways.received.values()) == 0
        assert len(alice.routers) == 1
