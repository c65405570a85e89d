"""How long an agent waits after an outage."""

import pytest

from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.agent.dials import BASE_DELAY, STABLE_AFTER, Backoff, Failure
from agentmesh.pool.agent.orders import Dial
from tests.pool.agent.driving import World


@pytest.mark.parametrize("connections", [1, 2, 8, 64])
@pytest.mark.parametrize("lasted", [1.0, STABLE_AFTER + 1.0])
def test_an_outage_of_many_connections_is_one(connections: int, lasted: float) -> None:
    world = World(ConnectionsConfig(min=connections, max=64), chance=lambda: 1.0).start()
    world.run(lasted)
    before = len(world.of(Dial))
    for connection_id in world.controller.active:
        world.controller.lost(connection_id, world.now)
    world.run(BASE_DELAY - 0.1)
    assert len(world.of(Dial)) == before
    world.run(0.2)
    assert len(world.controller.active) == connections


def test_the_next_outage_is_another() -> None:
    backoff = Backoff(lambda: 1.0)
    assert [backoff.lost(1.0, 0.0) for _ in range(3)] == [1.0, 1.0, 1.0]
    assert [backoff.failed(Failure.NETWORK, 1.0), backoff.lost(1.0, 2.9)] == [2.0, 2.0]
    assert [backoff.lost(1.0, at) for at in (3.0, 7.0, 15.0, 31.0)] == [4.0, 8.0, 16.0, 30.0]
    assert backoff.lost(STABLE_AFTER, 31.0) == 1.0
