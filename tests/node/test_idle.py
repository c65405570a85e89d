"""A while after a call a node holds its routers again, and nothing else; what is in use stays."""

from typing import Any

import trio
from trio.testing import MockClock

from agentmesh.node import Node
from agentmesh.node.idle import LOOKS
from tests.node.fleet import ECHO, Fleet, call, lone, open_fleet

TIMEOUT = 300.0
# Everything here is over within the hour that a circuit may last.
LONGEST = TIMEOUT * (1 + 1 / LOOKS) + 10  # until it was looked at, and closed


async def pair(fleet: Fleet, **settings: Any) -> tuple[Node, Node]:
    """Two members that hold a router each, and not the same."""
    nodes = list[Node]()
    for name in ("alice", "bob"):
        router = await fleet.router(f"{name}s")
        nodes.append(await lone(fleet, name, router, **settings))
    await trio.sleep(60)
    return nodes[0], nodes[1]


async def test_what_a_call_needed_is_let_go(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        alice, bob = await pair(fleet)
        for _ in range(3):
            await call(bob, alice.peer)
            assert len(bob.host.connections.peers) == 3
            await trio.sleep(TIMEOUT - 1)
            assert len(bob.host.connections.peers) == 3
            await trio.sleep(LONGEST - TIMEOUT + 1)
            assert set(bob.host.connections.peers) == {*alice.routers, *bob.routers}
            await trio.sleep(LONGEST)
            assert set(bob.host.connections.peers) == set(bob.routers)
            assert set(alice.host.connections.peers) == set(alice.routers)


async def test_a_call_every_now_and_then_keeps_it(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        alice, bob = await pair(fleet)
        await call(bob, alice.peer)
        kept = list(bob.host.connections)
        for _ in range(10):
            await trio.sleep(TIMEOUT * 0.9)
            await call(bob, alice.peer)
        assert list(bob.host.connections) == kept


async def test_a_stream_that_stands_keeps_its_circuit_and_the_router_that_carries_it(
    autojump_clock: MockClock,
) -> None:
    async with open_fleet() as fleet:
        alice, bob = await pair(fleet)
        async with await bob.open_stream(alice.peer, ECHO) as stream:
            for _ in range(5):
                await trio.sleep(LONGEST)  # at first, when nothing was sent on it, just as later
                await stream.send_all(b"still there?")
                assert await stream.receive_some() == b"still there?"
        await trio.sleep(2 * LONGEST)
        assert set(bob.host.connections.peers) == set(bob.routers)


async def test_a_node_may_keep_everything(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        alice, bob = await pair(fleet, idle_timeout=float("inf"))
        await call(bob, alice.peer)
        await trio.sleep(60)
        kept = list(bob.host.connections)
        await trio.sleep(5 * LONGEST)
        assert list(bob.host.connections) == kept
