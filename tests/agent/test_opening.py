"""Opening an agent's process is safe to cancel: whenever it strikes, nothing is left, and the next attempt succeeds."""

from pathlib import Path
from random import Random

from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.agent import open_agent_as
from agentmesh.identity import Identity
from agentmesh.pool.agent.targets import Connector
from agentmesh.testing import cancel_at_every_await
from tests.agent.fleet import ANYTHING, ids_at, open_agent_fleet, open_at, spread, wait_until
from tests.pool.worlds import say


async def test_opening_an_agent_can_be_cancelled_at_every_await(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        router, identity = await fleet.router("r1"), Identity.generate()

        async def operation() -> None:
            membership = await fleet.agents_member(identity=identity)
            transports = [fleet.network.transport("agent")]
            config = fleet.config("agent")
            connector = Connector(ANYTHING, fleet.targets.resolve, fleet.targets.dial)
            async with open_agent_as(
                membership, config, transports=transports, connector=connector, rng=Random(1)
            ) as agent:
                await wait_until(lambda: agent.is_ready and spread(router) == [1])
                async with await open_at(router) as stream:
                    assert await say(stream) == b"hello"

        async def check() -> None:
            await wait_until(lambda: not ids_at(router))
            await wait_all_tasks_blocked()
            assert len(router.host.connections) == 0
            assert len(router.host.admissions) == 0
            assert fleet.targets.open == 0

        assert await cancel_at_every_await(operation, check=check) > 10
        await fleet.process(identity=identity)
        await wait_until(lambda: spread(router) == [1])
