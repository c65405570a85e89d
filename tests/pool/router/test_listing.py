"""Connections of a router in the registry of its cluster."""

import pytest
import trio
from trio.testing import MockClock

from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.registry import ConnectionLease, KeeperConfig, MemoryRegistry, NewConnection, RegistryLimits
from agentmesh.pool.router.attached import attached_to
from agentmesh.pool.router.claims import Claim, ConnectionKey, Reason, Refusal
from agentmesh.pool.router.leased import PooledStream
from agentmesh.protocols.pool import ConnEpoch
from tests.pool.registry.faulty import Fault, FaultyRegistry
from tests.pool.worlds import asked, open_cluster, say

THREE = ConnectionsConfig(min=3, max=3)
TTL = KeeperConfig().ttl


def memory(limits: RegistryLimits | None = None) -> MemoryRegistry:
    return MemoryRegistry(limits, clock=trio.current_time)


async def listed(registry: MemoryRegistry) -> list[ConnectionLease]:
    return list(await registry.list_active_by_agent("agent"))


async def test_what_is_connected_is_listed_and_what_has_left_is_not(autojump_clock: MockClock) -> None:
    registry = memory()
    async with open_cluster(registry=registry) as cluster:
        async with cluster.agent("i1", THREE):
            await cluster.wait_for(3)
            stream = await cluster.open()
            await trio.sleep(60)
            leases = await listed(registry)
            pool = cluster.table.get("agent")
            assert pool is not None
            assert [(lease.connection_id, lease.connection_epoch) for lease in leases] == [
                (one.connection_id, one.epoch) for one in pool.connections
            ]
            assert sorted(lease.active_streams for lease in leases) == [0, 0, 1]
            assert {lease.health_score for lease in leases} == {100}
            await stream.aclose()
        await cluster.wait_for(0)
        await trio.sleep(1)
        assert await listed(registry) == []


async def test_the_registry_gives_the_epoch_that_the_wire_has(autojump_clock: MockClock) -> None:
    registry = memory()
    async with open_cluster(registry=registry) as cluster, cluster.agent("i1") as agent:
        await cluster.wait_for(1)
        [lease] = await listed(registry)
        [link] = agent.links.values()
        pool = cluster.table.get("agent")
        assert pool is not None
        assert link.ack is not None
        assert link.ack.epoch == lease.connection_epoch == pool.by_id[link.connection_id].epoch


async def test_a_connection_outlives_an_outage_of_the_registry(autojump_clock: MockClock) -> None:
    registry = memory()
    faulty = FaultyRegistry(registry)
    async with open_cluster(registry=faulty) as cluster, cluster.agent("i1"):
        await cluster.wait_for(1)
        pool = cluster.table.get("agent")
        assert pool is not None
        [connection] = pool.connections
        before, stream = connection.key, await cluster.open()
        faulty.fault = Fault.AWAY
        await trio.sleep(3 * TTL)
        assert await say(stream) == b"hello"  # those that stream do not notice
        result = await cluster.service.opener.open_on(before, asked())
        assert not isinstance(result, PooledStream)  # who may be somebody else's by now
        faulty.fault = Fault.NONE
        await trio.sleep(60)
        assert connection.epoch > before.epoch
        [lease] = await listed(registry)
        assert lease.connection_epoch == connection.epoch
        assert not isinstance(await cluster.service.opener.open_on(before, asked()), PooledStream)
        assert isinstance(await cluster.service.opener.open_on(connection.key, asked()), PooledStream)
        assert await say(stream) == b"hello"


async def test_a_connection_that_lives_on_elsewhere_is_let_go(autojump_clock: MockClock) -> None:
    registry = memory()
    async with open_cluster(registry=registry) as cluster, cluster.agent("i1"):
        await cluster.wait_for(1)
        pool = cluster.table.get("agent")
        assert pool is not None
        [zombie] = pool.connections
        other = NewConnection(
            agent_id="agent", connection_id=zombie.connection_id, instance_id="i1", server_node_id="n2"
        )
        await registry.register_connection(other, TTL, ConnEpoch(zombie.epoch + 1))
        await trio.sleep(90)
        assert zombie.connection_id not in pool.by_id
        assert attached_to(zombie).control.machine.ours.has_begun
        await cluster.wait_for(1)  # the agent has come again, under another name


async def test_without_the_registry_nobody_is_let_in(autojump_clock: MockClock) -> None:
    faulty = FaultyRegistry(memory())
    faulty.fault = Fault.AWAY
    async with open_cluster(registry=faulty) as cluster, cluster.agent("i1"):
        await trio.sleep(60)
        assert cluster.connections() == []
        assert cluster.table.refused[Reason.REGISTRY_UNAVAILABLE] > 1
        assert len(cluster.table) == 0  # and no place is kept for it
        faulty.fault = Fault.NONE
        await cluster.wait_for(1)


async def test_the_clusters_limit_counts(autojump_clock: MockClock) -> None:
    registry = memory(RegistryLimits(max_connections_per_agent=2))
    async with open_cluster(registry=registry) as cluster, cluster.agent("i1", THREE):
        await trio.sleep(120)
        assert len(cluster.connections()) == 2
        assert cluster.table.refused[Reason.MAX_CONNECTIONS_PER_AGENT] > 0


@pytest.mark.parametrize("node", ["n1", "n2"])
async def test_other_routers_connections_are_remote(autojump_clock: MockClock, node: str) -> None:
    registry = memory()
    async with open_cluster(registry=registry) as cluster, cluster.agent("i1"):
        await cluster.wait_for(1)
        new = NewConnection(agent_id="agent", connection_id="far", instance_id="i9", server_node_id=node)
        await registry.register_connection(new, TTL)
        remotes = await cluster.lister.remotes("AGENT")
        assert [one.connection_id for one in remotes] == (["far"] if node == "n2" else [])
        assert not cluster.lister.accepts(ConnectionKey("agent", "far", ConnEpoch(1)))


async def test_what_the_registry_says_no_to(autojump_clock: MockClock) -> None:
    registry = memory()
    async with open_cluster(registry=registry) as cluster:
        new = NewConnection(agent_id="agent", connection_id="c1", instance_id="i9", server_node_id="n2")
        await registry.register_connection(new, TTL, ConnEpoch(5))
        for epoch, reason in ((0, Reason.HELD), (5, Reason.STALE_EPOCH), (4, Reason.STALE_EPOCH)):
            claim = Claim(agent_id="agent", instance_id="i1", connection_id="c1", epoch=ConnEpoch(epoch), token_id="t")
            refusal = await cluster.lister.register(claim)
            assert isinstance(refusal, Refusal)
            assert refusal.reason is reason
