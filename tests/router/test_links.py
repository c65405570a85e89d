"""Routers that lose each other and come back are linked again, once."""

from itertools import combinations

import trio
from trio.testing import MockClock

from agentmesh.testing import Conditions
from tests.node.fleet import open_fleet

NAMES = [f"r{number}" for number in range(4)]
QUIET = 10.0  # seconds
FEW = 400  # packets among them in that time: pings, and what federation asks


async def test_routers_that_were_started_again_do_not_answer_each_others_answers(autojump_clock: MockClock) -> None:
    """A link that ends while the other side answers it: the answer is of no use, and is not answered."""
    async with open_fleet() as fleet:
        for one, other in combinations(NAMES, 2):
            fleet.network.set_conditions(one, other, Conditions(latency=0.02, jitter=0.01))
        for name in NAMES:
            await fleet.router(name)
        for name in 3 * NAMES:
            await fleet.stop(name)
            router = await fleet.router(name)
            await trio.sleep(5)
            before = len(fleet.network.trace)
            await trio.sleep(QUIET)
            assert len(fleet.network.trace) - before < FEW, name
            assert router.floodsub.statistics().links == len(NAMES) - 1
