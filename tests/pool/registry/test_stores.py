"""What is a store's own: what outlives a restart, whose clock counts, what is said when it does not answer."""

import sqlite3
import subprocess
import sys
import threading
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from agentmesh.control_plane import engines
from agentmesh.errors import MissingExtraError
from agentmesh.pool.registry import (
    ConnectionRegistry,
    Fence,
    Held,
    Lapsed,
    Registered,
    RegistryLimits,
    RegistryRefusedError,
    RegistryUnavailableError,
    Renewed,
    Stats,
    StatsReport,
    Superseded,
    Updated,
    sql_database,
)
from agentmesh.pool.registry.dsn import EtcdCluster, parse_registry_dsn, parse_sql_dsn
from agentmesh.pool.registry.etcd_client import EtcdClient, get_below, put
from agentmesh.pool.registry.opening import open_registry
from agentmesh.pool.registry.sql import make_tables
from agentmesh.pool.registry.sql_database import open_sql_database
from agentmesh.pool.registry.sql_statements import LOCKS
from agentmesh.protocols.pool import ConnEpoch
from tests.pool.registry.conftest import new_dsn
from tests.pool.registry.test_contract import TTL, connection
from tests.servers.etcd import Etcd
from tests.servers.postgres import Postgres
from tests.servers.server import free_port

LASTING = ("sqlite", "postgres", "mariadb", "etcd")


@pytest.fixture(params=LASTING)
def dsn(request: pytest.FixtureRequest) -> str:
    """Of a store with nothing in it."""
    return new_dsn(request, request.param)


async def registered(registry: ConnectionRegistry, ttl: float = TTL, proposed: int | None = None) -> Fence:
    epoch = None if proposed is None else ConnEpoch(proposed)
    outcome = await registry.register_connection(connection(), ttl, epoch)
    assert isinstance(outcome, Registered), outcome
    return outcome.fence


async def wait_listed(registry: ConnectionRegistry, count: int) -> None:
    """Return when so many connections are listed: the server's time passes while we ask."""
    with trio.fail_after(60):
        while len(await registry.list_active_by_agent("agent")) != count:  # noqa: ASYNC110 - it tells nobody
            await trio.sleep(0.05)


def test_who_keeps_leases_in_memory_loads_no_database() -> None:
    """It would be 10 MiB of each process."""
    code = "import agentmesh.pool.registry, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "agentmesh.pool.registry.keeper" in loaded
    assert not {"sqlalchemy", "agentmesh.pool.registry.opening"} & set(loaded)


async def test_leases_and_epochs_outlive_the_router(dsn: str) -> None:
    async with open_registry(dsn) as registry:
        fence = await registered(registry, proposed=2**53 + 1)
    async with open_registry(dsn) as registry:
        assert isinstance(await registry.register_connection(connection(), TTL), Held)
        assert isinstance(await registry.renew_connection(fence, TTL), Renewed)
        await registry.release_connection(fence)
        await registry.forget_fences(0)
    async with open_registry(dsn) as registry:
        assert (await registered(registry)).epoch == 2**53 + 2


async def test_routers_that_open_a_new_store_at_once_share_it(dsn: str) -> None:
    async with AsyncExitStack() as stack:
        registries: list[ConnectionRegistry] = []

        async def enter() -> None:
            registries.append(await stack.enter_async_context(open_registry(dsn)))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(enter)
        fence = await registered(registries[0])
        report = StatsReport(fence, Stats(1))
        assert await registries[1].update_connection_stats([report]) == (Updated(),)
        assert isinstance(await registries[2].register_connection(connection(), TTL), Held)


async def test_a_lease_runs_out_by_the_clock_of_the_store(dsn: str) -> None:
    """Nobody's clock is moved here, and no lease is helped to its end."""
    async with open_registry(dsn) as registry:
        fence = await registered(registry, ttl=0.2)
        await wait_listed(registry, 0)
        assert await registry.renew_connection(fence, 1) == Lapsed()
        assert (await registered(registry)).epoch == fence.epoch + 1
        assert await registry.renew_connection(fence, 1) == Superseded(ConnEpoch(fence.epoch + 1))


async def test_many_routers_that_register_connections_of_one_agent_at_once_keep_to_its_limit(dsn: str) -> None:
    limits = RegistryLimits(max_connections_per_agent=3)
    async with open_registry(dsn, limits) as one, open_registry(dsn, limits) as other:
        outcomes: list[object] = []

        async def call(registry: ConnectionRegistry, number: int) -> None:
            outcomes.append(await registry.register_connection(connection(f"conn-{number}"), TTL))

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(call, one, 2 * number)
                nursery.start_soon(call, other, 2 * number + 1)
        assert sum(isinstance(outcome, Registered) for outcome in outcomes) == 3
        assert len(await one.list_active_by_agent("agent")) == 3


@pytest.mark.parametrize(
    "scheme", ["postgresql://mesh:secret@127.0.0.1:{}/db", "mysql://root:secret@127.0.0.1:{}/db", "etcd://127.0.0.1:{}"]
)
async def test_a_server_that_is_away_is_to_be_tried_again(scheme: str) -> None:
    with pytest.raises(
        RegistryUnavailableError, match="the database does not answer: .*127.0.0.1|of the etcd"
    ) as caught:
        async with open_registry(scheme.format(free_port())) as registry:
            await registry.list_active_by_agent("agent")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("scheme", "extra"), [("postgresql", "postgres"), ("mariadb", "mysql")])
async def test_without_the_driver_it_is_said_what_to_install(
    scheme: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError

    for module in (engines, sql_database):
        monkeypatch.setattr(module, "create_engine", missing)
    with pytest.raises(MissingExtraError, match=rf"pip install 'agentmesh\[{extra}\]'"):
        async with open_registry(f"{scheme}://h/d"):
            pass


async def test_another_member_of_etcd_answers_for_one_that_is_away(etcd: Etcd) -> None:
    dsn = etcd.new_dsn().replace("etcd://", f"etcd://127.0.0.1:{free_port()},")
    async with open_registry(dsn) as registry:
        await registered(registry)
        assert len(await registry.list_active_by_agent("agent")) == 1


async def test_renewing_for_another_time_moves_a_connection_and_its_statistics_to_another_lease(etcd: Etcd) -> None:
    async with open_registry(etcd.new_dsn()) as registry:
        fence = await registered(registry, ttl=1)
        await registry.update_connection_stats([StatsReport(fence, Stats(5, 60))])
        assert isinstance(await registry.renew_connection(fence, 600), Renewed)
        other = await registry.register_connection(connection("conn-2"), 1)
        assert isinstance(other, Registered)
        await wait_listed(registry, 1)
        (lease,) = await registry.list_active_by_agent("agent")
        assert (lease.active_streams, lease.health_score) == (5, 60)


async def test_what_is_not_ours_in_etcd_is_named_and_not_guessed(etcd: Etcd) -> None:
    dsn = etcd.new_dsn()
    cluster = parse_registry_dsn(dsn)
    assert isinstance(cluster, EtcdCluster)
    async with open_registry(dsn) as registry, httpx.AsyncClient(trust_env=False) as http:
        fence = await registered(registry)
        client = EtcdClient(http, cluster.endpoints)
        for kind in ("connections", "connection-epochs"):
            await client.write_if([], put(f"{cluster.prefix}/agents/agent/{kind}/conn-1", b"[1]"))
        with pytest.raises(RegistryRefusedError, match="agents/agent/connections/conn-1"):
            await registry.list_active_by_agent("agent")
        with pytest.raises(RegistryRefusedError, match="connection-epochs"):
            await registry.renew_connection(fence, TTL)
        await client.write_if([], put(f"{cluster.prefix}/agents/agent/connection-floor", b"x"))
        with pytest.raises(RegistryRefusedError, match="connection-"):
            await registry.register_connection(connection("conn-2"), TTL)


async def test_keys_of_etcd_are_where_others_look_for_them(etcd: Etcd) -> None:
    """Connections hang on a lease, and nothing else does; a node's own record is not touched."""
    dsn = etcd.new_dsn()
    cluster = parse_registry_dsn(dsn)
    assert isinstance(cluster, EtcdCluster)
    async with open_registry(dsn) as registry, httpx.AsyncClient(trust_env=False) as http:
        fence = await registered(registry)
        await registry.update_connection_stats([StatsReport(fence, Stats())])
        (found,) = await EtcdClient(http, cluster.endpoints).read(get_below(f"{cluster.prefix}/"))
    keys = {kv.key.removeprefix(cluster.prefix): kv.lease > 0 for kv in found.kvs}
    assert keys == {
        "/agents/agent/connections/conn-1": True,
        "/agents/agent/connection-stats/conn-1": True,
        "/agents/agent/connection-epochs/conn-1": False,
        "/agents/agent/connection-floor": False,
        "/agent-names/agent/agent": False,
    }


async def test_tables_that_are_not_ours_are_an_operators_to_mend(postgres: Postgres) -> None:
    dsn = postgres.new_dsn()
    async with open_sql_database(parse_sql_dsn(dsn)) as database:
        await database.write(
            lambda connection: connection.execute(text("CREATE TABLE agent_connections (agent_id TEXT)")).rowcount
        )
    with pytest.raises(RegistryRefusedError):
        async with open_registry(dsn) as registry:
            await registry.list_active_by_agent("agent")


async def test_capabilities_that_are_no_list_are_named(tmp_path: Path) -> None:
    dsn = str(tmp_path / "pool.db")
    async with open_registry(dsn) as registry, open_sql_database(parse_sql_dsn(dsn)) as database:
        await registered(registry)
        change = text("UPDATE agent_connections SET capabilities = '5'")
        await database.write(lambda connection: connection.execute(change).rowcount)
        with pytest.raises(RegistryRefusedError, match="capabilities"):
            await registry.list_active_by_agent("agent")


@pytest.mark.parametrize("dsn", ["sqlite", "postgres", "mariadb"], indirect=True)
async def test_a_change_that_always_loses_its_race_ends_with_an_error(dsn: str) -> None:
    calls = 0

    def lose(connection: Connection) -> None:
        nonlocal calls
        calls += 1
        raise IntegrityError("", None, sqlite3.IntegrityError())

    async with open_sql_database(parse_sql_dsn(dsn)) as database:
        database.max_races = 3
        with pytest.raises(RegistryUnavailableError, match="too many"):
            await database.write(lose)
    assert calls == 3


async def test_two_changes_that_wait_for_each_other_both_succeed_on_mariadb(mariadb_dsn: str) -> None:
    """The server ends one of them, which is made again."""

    def lock(connection: Connection, agent_id: str) -> int:
        return LOCKS["mysql"](connection, agent_id)

    async with open_sql_database(parse_sql_dsn(mariadb_dsn)) as database:
        await make_tables(database)
        for agent_id in ("a", "b"):
            await database.write(partial(lock, agent_id=agent_id))
        meet = threading.Barrier(2)
        tries: list[str] = []

        def cross(connection: Connection, first: str, second: str) -> str:
            tries.append(first)
            lock(connection, first)
            if len(tries) <= 2:
                meet.wait(30)
            lock(connection, second)
            return first

        done: list[str] = []

        async def run(first: str, second: str) -> None:
            done.append(await database.write(partial(cross, first=first, second=second)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, "a", "b")
            nursery.start_soon(run, "b", "a")
    assert sorted(done) == ["a", "b"]
    assert len(tries) == 3
