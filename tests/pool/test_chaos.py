"""Everything goes wrong at random, the same way for one seed: only what was on a lost connection is lost with it."""

import random

import attrs
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.router.attached import attached_to
from agentmesh.pool.router.connection import Connection, State
from agentmesh.pool.router.invariants import violations
from agentmesh.pool.router.leased import PooledStream
from agentmesh.protocols.pool import DrainReason
from agentmesh.testing.links import Conditions
from tests.pool.worlds import Cluster, asked, open_cluster, say

MINUTES = 5


@attrs.define
class Chaos:
    """Streams that are used, and what happens to the connections under them."""

    cluster: Cluster
    chance: random.Random
    streams: list[PooledStream] = attrs.Factory(list[PooledStream])
    opened: int = 0
    refused: int = 0
    broken: int = 0

    @property
    def connections(self) -> list[Connection]:
        pool = self.cluster.table.get("agent")
        return list(pool.connections) if pool else []

    async def step(self) -> None:
        steps = [self.open, self.use, self.close, self.break_one, self.drain_one]
        await self.chance.choices(steps, [9, 9, 6, 1, 1])[0]()
        await trio.sleep(self.chance.expovariate(1.0))
        await wait_all_tasks_blocked()
        assert violations(self.cluster.table, trio.current_time()) == []

    async def open(self) -> None:
        if len(self.streams) > 60:
            return
        found = await self.cluster.service.opener.open("agent", asked())
        if isinstance(found, PooledStream):
            self.streams.append(found)
            self.opened += 1
        else:
            self.refused += 1

    async def use(self) -> None:
        if self.streams:
            stream = self.chance.choice(self.streams)
            try:
                data = self.chance.randbytes(self.chance.choice([1, 1000, 100_000]))
                with trio.fail_after(60):
                    assert await say(stream, data) == data
            except trio.BrokenResourceError:
                assert (
                    stream.lease.connection not in self.connections or stream.lease.connection.state is State.DRAINING
                )
                self.broken += 1
                self.streams.remove(stream)
                await stream.aclose()

    async def close(self) -> None:
        if self.streams:
            stream = self.streams.pop(self.chance.randrange(len(self.streams)))
            if self.chance.random() < 0.5:
                stream.reset()
            await stream.aclose()

    async def break_one(self) -> None:
        if self.connections:
            attached_to(self.chance.choice(self.connections)).session.abort("the cable")

    async def drain_one(self) -> None:
        if self.connections:
            self.cluster.service.drain(self.chance.choice(self.connections), DrainReason.SERVER_SHUTDOWN, timeout=20.0)


async def test_whatever_breaks_the_rest_goes_on(autojump_clock: MockClock, seed: int = 1) -> None:
    config = ConnectionsConfig(min=2, max=4, high_watermark=6, low_watermark=1)
    async with (
        open_cluster(seed=seed) as cluster,
        cluster.agent("i1", config) as one,
        cluster.agent("i2", config) as other,
    ):
        cluster.network.set_conditions("i1", "router", Conditions(latency=0.02, jitter=0.01))
        cluster.network.set_conditions("i2", "router", Conditions(latency=0.1))
        await cluster.wait_for(4)
        chaos = Chaos(cluster, random.Random(seed))
        while trio.current_time() < 60 * MINUTES:
            await chaos.step()
        assert chaos.opened > 50
        assert chaos.refused <= chaos.opened * 0.01
        for stream in chaos.streams:
            await stream.aclose()
        await trio.sleep(120)
        assert violations(cluster.table, trio.current_time()) == []
        for pool in cluster.table:
            assert pool.active_streams == 0
        for agent in (one, other):
            assert not any(link.opens for link in agent.links.values())
            assert 2 <= agent.controller.count <= 4
