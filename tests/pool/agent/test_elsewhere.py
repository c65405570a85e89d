"""An agent whose connections have all come to one router, and another router that is there again later."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.agent.controller import MAX_REDIALS
from agentmesh.pool.agent.dials import LOOK_AGAIN, MAX_LOOK_AGAIN
from agentmesh.pool.agent.orders import Close, CloseReason, Dial
from agentmesh.pool.agent.scaling import Report
from agentmesh.protocols.pool import Ack
from tests.pool.agent.driving import NO_POOL, POOL, World

LOOK = 20.0  # seconds within which what is due is done: evaluations are ten seconds apart


def at(node: str) -> Ack:
    return attrs.evolve(POOL, server_node_id=node)


def crowded(least: int = 2, streams: int = 0) -> World:
    """All connections are at n1, and it has been seen that there is no other router."""
    world = World(
        ConnectionsConfig(min=least, max=8), ack=at("n1"), load=lambda _: Report(active_streams=streams, rtt=0.05)
    ).start()
    assert len(world.of(Dial)) == least + MAX_REDIALS
    world.orders.clear()
    return world


def test_a_router_that_is_there_again_is_found() -> None:
    world = crowded()
    world.ack = at("n2")
    world.run(LOOK_AGAIN + LOOK)
    assert len(world.of(Dial)) == 1
    assert [order.reason for order in world.of(Close) if isinstance(order, Close)] == [CloseReason.DRAINED]
    assert len(world.controller.active) == 2
    world.run(10 * MAX_LOOK_AGAIN)
    assert len(world.of(Dial)) == 1  # they are at two routers: all is well


def test_where_there_is_none_the_looks_become_rare() -> None:
    world = crowded()
    world.run(24 * 3600.0)
    dials = len(world.of(Dial))
    assert 20 < dials < 35
    assert len(world.controller.active) == 2


def test_a_connection_with_streams_is_left_alone() -> None:
    world = crowded(streams=1)
    world.run(LOOK_AGAIN)
    world.orders.clear()
    world.ack = at("n2")
    world.run(MAX_LOOK_AGAIN)
    assert world.orders == []
    world.load = lambda _: Report()
    world.run(LOOK)  # it was due all the time
    assert len(world.of(Dial)) == 1


def test_one_connection_is_at_one_router_and_stays_there() -> None:
    world = World(ack=at("n1")).start()
    world.run(10 * MAX_LOOK_AGAIN)
    assert len(world.of(Dial)) == 1


def test_routers_without_names_or_pools_are_left_alone() -> None:
    for ack in (POOL, NO_POOL):
        world = World(ConnectionsConfig(min=2, max=2), ack=ack).start()
        before = len(world.of(Dial))
        world.run(10 * MAX_LOOK_AGAIN)
        assert len(world.of(Dial)) == before


@given(st.lists(st.sampled_from(["n1", "n2", None]), max_size=20), st.integers(2, 4))
def test_there_are_never_too_few_for_longer_than_a_dial(nodes: list[str | None], least: int) -> None:
    """Whatever answers, or nothing: the places are there, and connections as soon as somebody answers."""
    world = crowded(least)
    for node in nodes:
        world.ack = None if node is None else at(node)
        world.run(LOOK_AGAIN)
        assert world.controller.count == least
    world.ack = at("n1")
    for order in world.of(Dial):
        if isinstance(order, Dial):
            world.controller.joined(order.connection_id, world.ack, world.now)
    world.run(LOOK_AGAIN)
    assert len(world.controller.active) == least
