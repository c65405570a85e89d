"""Opening a node is safe to cancel: whenever it strikes, nothing is left, and the next attempt succeeds."""

from random import Random
from typing import Any

import pytest
from trio.testing import MockClock

from agentmesh.identity import Identity
from agentmesh.membership import Enrollment, Membership
from agentmesh.node import NodeConfig, run_node_as
from agentmesh.testing import cancel_at_every_await
from tests.membership.plane import NODE_TOKEN, wall_clock
from tests.node.fleet import open_fleet, wait_attached


async def test_opening_a_node_can_be_cancelled_at_every_await(autojump_clock: MockClock) -> None:
    async with open_fleet() as fleet:
        router = await fleet.router("router")
        identity = Identity.generate()
        enrollment = Enrollment(control_plane="http://cp", token=NODE_TOKEN)

        async def operation() -> None:
            membership = Membership(identity, fleet.plane.client(identity), enrollment, None, wall_clock)
            await membership.begin()
            transports = [fleet.network.transport("node")]
            config = NodeConfig(enrollment=enrollment)
            async with run_node_as(membership, config, transports=transports, rng=Random(1)) as node:
                assert node.routers == (router.peer,)

        assert await cancel_at_every_await(operation) > 20
        assert len(router.host.connections) == 0
        assert len(router.host.admissions) == 0
        assert router.relay.statistics().reservations == 0
        node = await fleet.node("node")
        await wait_attached(node, router)


@pytest.mark.parametrize("setting", [{"routers": 0}, {"ready_timeout": -1.0}], ids=str)
def test_a_setting_that_is_out_of_range_is_named(setting: dict[str, Any]) -> None:
    (name,) = setting
    with pytest.raises(ValueError, match=name):
        NodeConfig(enrollment=Enrollment(control_plane="http://cp"), **setting)
