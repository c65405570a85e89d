"""Leases of the time when an agent had one connection are copied, each once; the old ones are there to go back to."""

from collections.abc import Sequence

import attrs
import httpx
import pytest
from sqlalchemy import Connection, text

from agentmesh.pool.registry import Lapsed, Registered, Renewed, Superseded
from agentmesh.pool.registry.dsn import EtcdCluster, parse_registry_dsn, parse_sql_dsn
from agentmesh.pool.registry.etcd_client import EtcdClient, get_below, put
from agentmesh.pool.registry.etcd_legacy import migrate as migrate_etcd
from agentmesh.pool.registry.legacy import Migration
from agentmesh.pool.registry.opening import open_registry
from agentmesh.pool.registry.sql import make_tables
from agentmesh.pool.registry.sql_database import SqlDatabase, open_sql_database
from agentmesh.pool.registry.sql_legacy import migrate
from agentmesh.protocols.pool import ConnEpoch
from tests.pool.registry.test_contract import TTL, connection
from tests.servers.etcd import Etcd

LATER, BEFORE = "2999-01-01T00:00:00Z", "2001-01-01T00:00:00.123456789Z"
TABLE = """
CREATE TABLE agent_runtime_leases (
    agent_id VARCHAR(255) PRIMARY KEY,
    node_id VARCHAR(255) NOT NULL,
    epoch BIGINT NOT NULL,
    acquired_at VARCHAR(40) NOT NULL,
    expires_at VARCHAR(40) NOT NULL,
    updated_at VARCHAR(40) NOT NULL
)
"""


async def run(database: SqlDatabase, statement: str) -> None:
    await database.write(lambda connection: connection.execute(text(statement)).rowcount)


async def add(database: SqlDatabase, agent_id: str, node_id: str, epoch: int, expires_at: str = LATER) -> None:
    values = f"'{agent_id}', '{node_id}', {epoch}, '', '{expires_at}', ''"
    await run(database, f"INSERT INTO agent_runtime_leases VALUES ({values})")


async def all_of(database: SqlDatabase, table: str) -> list[tuple[object, ...]]:
    def read(connection: Connection) -> list[tuple[object, ...]]:
        return [tuple(row) for row in connection.execute(text(f"SELECT * FROM {table} ORDER BY agent_id"))]

    return await database.read(read)


async def test_every_lease_becomes_a_connection_and_stays_where_it_was(sql_dsn: str) -> None:
    async with open_sql_database(parse_sql_dsn(sql_dsn)) as database:
        await run(database, TABLE)
        values = [f"('agent-{n:04}', 'node-{n % 7}', {2**53 + 1 + n}, '', '{LATER}', '')" for n in range(520)]
        await run(database, f"INSERT INTO agent_runtime_leases VALUES {', '.join(values)}")
        before = await all_of(database, "agent_runtime_leases")
        async with open_registry(sql_dsn) as registry:
            (lease,) = await registry.list_active_by_agent("agent-0519")
            assert (lease.connection_id, lease.connection_epoch) == (f"legacy-{2**53 + 520}", 2**53 + 520)
            assert (lease.instance_id, lease.server_node_id) == ("node-1", "node-1")
            assert (lease.capabilities, lease.active_streams, lease.health_score) == ((), 0, 100)
            assert isinstance(await registry.renew_connection(lease.fence, TTL), Renewed)
        assert len(await all_of(database, "agent_connections")) == 520
        assert await all_of(database, "agent_runtime_leases") == before


async def test_migrating_again_adds_what_came_since_and_changes_nothing_else(sql_dsn: str) -> None:
    async with open_sql_database(parse_sql_dsn(sql_dsn)) as database:
        await run(database, TABLE)
        await make_tables(database)
        await add(database, "one", "node", 12)
        assert await migrate(database) == Migration(copied=1)
        async with open_registry(sql_dsn) as registry:
            fence = attrs.evolve(connection("legacy-12", "one"), server_node_id="router").fenced(13)
            taken = await registry.register_connection(connection("legacy-12", "one"), TTL, fence.epoch)
            assert isinstance(taken, Registered)
            await add(database, "two", "node", 3)
            assert await migrate(database) == Migration(copied=1, known=1)
            assert await migrate(database) == Migration(known=2)
            (lease,) = await registry.list_active_by_agent("one")
            assert (lease.server_node_id, lease.connection_epoch) == ("router-1", 13)
            await registry.release_connection(fence)
            assert await migrate(database) == Migration(known=2)
            assert await registry.list_active_by_agent("one") == ()


async def test_a_lease_that_ran_out_keeps_its_epoch_from_coming_again(sql_dsn: str) -> None:
    async with open_sql_database(parse_sql_dsn(sql_dsn)) as database:
        await run(database, TABLE)
        await add(database, "one", "node", 40, BEFORE)
        async with open_registry(sql_dsn) as registry:
            old = connection("legacy-40", "one")
            assert await registry.list_active_by_agent("one") == ()
            assert await registry.renew_connection(old.fenced(40), TTL) == Lapsed()
            assert await registry.register_connection(old, TTL, ConnEpoch(40)) == Superseded(ConnEpoch(40))
            await registry.forget_fences(0)
            assert await migrate(database) == Migration(known=1)
            outcome = await registry.register_connection(old, TTL)
            assert isinstance(outcome, Registered)
            assert outcome.fence.epoch == 41


async def test_what_no_registry_can_keep_is_named_and_left(sql_dsn: str) -> None:
    async with open_sql_database(parse_sql_dsn(sql_dsn)) as database:
        await run(database, TABLE)
        await make_tables(database)
        await add(database, "a b", "node", 1)
        await add(database, "bad-node", "no/de", 1)
        await add(database, "negative", "node", -1)
        await add(database, "undated", "node", 1, "soon")
        await add(database, "good", "node", 1)
        done = await migrate(database)
        assert (done.copied, sorted(done.refused)) == (1, ["a b", "bad-node", "negative", "undated"])
        assert len(await all_of(database, "agent_runtime_leases")) == 5


async def test_without_leases_of_before_nothing_is_done(sql_dsn: str) -> None:
    async with open_sql_database(parse_sql_dsn(sql_dsn)) as database:
        assert await migrate(database) == Migration()


VALUES: Sequence[tuple[bytes, bool]] = [
    (b'{"node_id":"node","epoch":12}', True),
    (b'{"node_id":"node","epoch":"9007199254740993","address":"x"}', True),
    (b'{"node_id":"node"}', False),
    (b'{"node_id":"no/de","epoch":1}', False),
    (b"[1]", False),
]


@pytest.mark.parametrize("leased", [True, False])
async def test_leases_in_etcd_become_connections_that_end_with_them(etcd: Etcd, leased: bool) -> None:
    dsn = etcd.new_dsn()
    cluster = parse_registry_dsn(dsn)
    assert isinstance(cluster, EtcdCluster)
    async with httpx.AsyncClient(trust_env=False) as http:
        client = EtcdClient(http, cluster.endpoints)
        lease = (await client.grant(600))[0] if leased else 0
        for number, (value, _) in enumerate(VALUES):
            await client.write_if([], put(f"{cluster.prefix}/agents/agent-{number}", value, lease))
        before = await client.read_all(f"{cluster.prefix}/agents/agent-", lambda _: True)
        async with open_registry(dsn) as registry:
            found = [await registry.list_active_by_agent(f"agent-{number}") for number in range(len(VALUES))]
            assert [len(leases) == 1 for leases in found] == [good for _, good in VALUES]
            assert [leases[0].connection_id for leases in found[:2]] == ["legacy-12", f"legacy-{2**53 + 1}"]
            assert found[0][0].server_node_id == found[0][0].instance_id == "node"
            done = await migrate_etcd(client, cluster.prefix, lambda: 0.0)
            assert (done.copied, done.known, len(done.refused)) == (0, 2, 3)
            kept = await client.read_all(f"{cluster.prefix}/agents/agent-", lambda kv: kv.key.count("/") == 3)
            assert kept == before
            if leased:
                await client.revoke(lease)
                assert await registry.list_active_by_agent("agent-0") == ()
                (left,) = await client.read(get_below(f"{cluster.prefix}/agents/agent-0/"))
                assert {kv.key.rpartition("/")[2] for kv in left.kvs} == {"legacy-12", "connection-floor"}
