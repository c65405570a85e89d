"""What has to hold is computed anew: each thing that is put wrong is found, and nothing is when nothing was."""

import random

import trio
from trio.testing import MockClock

from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.registry import Keeper, KeeperConfig, Kept, MemoryRegistry, NewConnection
from agentmesh.pool.router.attached import attached_to
from agentmesh.pool.router.claims import Reason
from agentmesh.pool.router.connection import Input
from agentmesh.pool.router.invariants import MAX_FOUND, violations
from agentmesh.pool.router.limits import PoolLimits
from agentmesh.pool.router.metadata import MetadataBook
from agentmesh.pool.router.table import Pool, PoolTable
from agentmesh.protocols.pool import ConnEpoch, Hello
from tests.pool.registry.faulty import FaultyRegistry
from tests.pool.router.test_table import claim, join
from tests.pool.test_pool_legacy import old_agent
from tests.pool.worlds import Cluster, open_cluster


def found(cluster: Cluster) -> list[str]:
    now, book = trio.current_time(), cluster.service.metadata
    return violations(cluster.table, now, keeper=cluster.lister.keeper, book=book)


def pool_of(table: PoolTable) -> Pool:
    pool = table.get("agent")
    assert pool is not None
    return pool


async def test_a_router_at_work_breaks_nothing(autojump_clock: MockClock) -> None:
    registry = MemoryRegistry(clock=trio.current_time)
    async with open_cluster(registry=registry) as cluster:
        assert found(cluster) == []
        async with cluster.agent("i1", ConnectionsConfig(min=3, max=3)), cluster.agent("i2"):
            await cluster.wait_for(4)
            streams = [await cluster.open() for _ in range(6)]
            assert found(cluster) == []
            await trio.sleep(100)
            for stream in streams[:3]:
                await stream.aclose()
            assert found(cluster) == []
        for _ in range(100):
            await trio.sleep(0.1)
            assert found(cluster) == []


async def test_streams_that_are_counted_and_not_there(autojump_clock: MockClock) -> None:
    registry = MemoryRegistry(clock=trio.current_time)
    async with open_cluster(registry=registry) as cluster, cluster.agent("i1"):
        await cluster.wait_for(1)
        [connection] = pool_of(cluster.table).connections
        lease = connection.reserve(trio.current_time(), "")
        assert any("have a place" in text for text in found(cluster))
        lease.accept(trio.current_time())
        lease.stream_id = 7
        assert any("streams [7] are counted and [] are there" in text for text in found(cluster))
        lease.end()
        assert found(cluster) == []
        scope = attached_to(connection).opening[9] = trio.CancelScope()
        assert any("[9] are being opened" in text for text in found(cluster))
        del attached_to(connection).opening[9]
        assert not scope.cancel_called


async def test_a_lease_and_a_connection_that_do_not_agree(autojump_clock: MockClock) -> None:
    registry = MemoryRegistry(clock=trio.current_time)
    table = PoolTable("n1")
    keeper = Keeper(registry, KeeperConfig(), random.Random(1))
    new = NewConnection(agent_id="agent", connection_id="c1", instance_id="i1", server_node_id="n1")
    kept = await keeper.register(new)
    assert isinstance(kept, Kept)

    def wrong() -> list[str]:
        return violations(table, 0.0, keeper=keeper)

    assert ["there is no such connection" in text for text in wrong()] == [True]
    place = table.begin(claim("c1", kept.epoch), 0.0)
    assert wrong() == []  # it is being registered
    table.complete(place, kept.epoch, object(), 0.0)  # type: ignore[arg-type]
    assert wrong() == []
    [connection] = pool_of(table).connections
    table.renumber(connection, ConnEpoch(kept.epoch + 1))
    assert ["kept under the epoch" in text for text in wrong()] == [True]
    join(table, claim("c2"))
    assert any("nobody keeps its lease" in text for text in wrong())
    pool_of(table).by_id["c2"].drain()
    assert not any("nobody keeps its lease" in text for text in wrong())
    nothing_kept = Keeper(registry, KeeperConfig(), random.Random(1))
    assert any("nobody keeps its lease" in text for text in violations(table, 0.0, keeper=nothing_kept))
    elsewhere = Keeper(registry, KeeperConfig(), random.Random(1))
    await elsewhere.register(NewConnection(agent_id="b", connection_id="c", instance_id="i", server_node_id="n2"))
    assert any("kept for n2" in text for text in violations(table, 0.0, keeper=elsewhere))


class Restored(FaultyRegistry):
    """A registry that can be put back to what it was at first."""

    def restore(self) -> None:
        self._registry = MemoryRegistry(clock=trio.current_time)


async def test_what_the_registry_takes_and_we_do_not_is_not_kept(autojump_clock: MockClock) -> None:
    registry = Restored(MemoryRegistry(clock=trio.current_time))
    async with open_cluster(registry=registry) as cluster:
        async with old_agent(cluster, "once") as agent:
            assert (await agent.hello(0))["registered"] is True
        await cluster.wait_for(0)
        registry.restore()
        async with old_agent(cluster, "again") as agent:  # whose epoch comes again, and is remembered here
            assert (await agent.hello(0))["registered"] is False
            await trio.sleep(1)
            assert (cluster.table.refused[Reason.STALE_EPOCH], len(cluster.lister.keeper)) == (1, 0)
            assert await registry.list_active_by_agent("agent") == ()
            assert found(cluster) == []


def test_a_connection_that_is_not_in_its_place() -> None:
    table = PoolTable("n1")
    first = join(table, claim("c1", 5)).connection
    pool = pool_of(table)
    assert violations(table, 0.0) == []
    pool.by_id["c2"] = first
    assert {text.partition(":")[0] for text in violations(table, 0.0)} >= {"1 connections are counted and 2 are there"}
    del pool.by_id["c2"]
    pool.fences["c1"] = (ConnEpoch(5), 100.0)
    assert any("was used before" in text for text in violations(table, 0.0))
    del pool.fences["c1"]
    first.claim = claim("c1", 5, agent_id="other")
    assert any("not in its place" in text for text in violations(table, 0.0))


def test_too_many() -> None:
    table = PoolTable("n1", PoolLimits(max_connections_per_node=4, max_connections_per_agent=2, max_fences_per_agent=1))
    connections = [join(table, claim(f"c{n}", agent_id=f"a{n % 2}")).connection for n in range(4)]
    table.begin(claim("c1", 2, agent_id="a1"), 0.0)  # who comes again is not one more
    assert violations(table, 0.0) == []
    pool = table.get("a0")
    assert pool is not None
    pool.fences["x"] = pool.fences["y"] = (ConnEpoch(1), 100.0)
    for n in range(3):
        pool.by_id[f"more{n}"] = connections[0]
    found = " ".join(violations(table, 0.0))
    for text in ("above max_connections_per_node", "2 epochs remembered", "more connections than there may be"):
        assert text in found
    assert len(violations(table, 0.0)) <= MAX_FOUND


def test_what_is_over_and_still_there() -> None:
    table = PoolTable("n1")
    first, second = join(table, claim("c1")).connection, join(table, claim("c2")).connection
    lease = first.reserve(0.0, "")
    second.leases.add(lease)
    assert any("another's" in text for text in violations(table, 0.0))
    second.leases.clear()
    lease.end()
    first.leases.add(lease)
    assert any("streams that are over" in text for text in violations(table, 0.0))
    first.leases.clear()
    first.step(Input.CLOSE)
    assert any("closed, and in the pool" in text for text in violations(table, 0.0))
    pool = pool_of(table)
    pool.by_id.clear()
    assert any("a pool of nothing" in text for text in violations(table, 0.0))
    pool.agent_id = "renamed"
    assert any("not found by its name" in text for text in violations(table, 0.0))


def test_agents_whose_names_differ_in_case_only_are_no_fault() -> None:
    table = PoolTable("n1")
    join(table, claim("c1", agent_id="Box"))
    join(table, claim("c2", agent_id="box"))
    assert violations(table, 0.0) == []


def test_a_process_that_has_gone_and_is_known_still() -> None:
    table, book = PoolTable("n1"), MetadataBook()
    join(table, claim("c1", instance_id="i1"))
    book.take("agent", "i1", Hello("agent", revision=1), 0.0)
    assert violations(table, 0.0, book=book) == []
    book.take("agent", "i2", Hello("agent", revision=1), 0.0)
    assert violations(table, 0.0, book=book) == ["agent: metadata of i2, which has gone"]
