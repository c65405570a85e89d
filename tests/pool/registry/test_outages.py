"""Servers that go away and come back under a registry that is open."""

from collections.abc import Callable
from random import Random

import pytest
import trio

from agentmesh.pool.registry import (
    ConnectionRegistry,
    Healed,
    Keeper,
    KeeperConfig,
    Kept,
    RegistryUnavailableError,
    Renewed,
    Stats,
    StatsReport,
)
from agentmesh.pool.registry.opening import open_registry
from tests.pool.registry.conftest import new_dsn
from tests.pool.registry.test_contract import connection
from tests.pool.registry.test_stores import registered, wait_listed
from tests.servers.etcd import Etcd
from tests.servers.mariadb import Mariadb
from tests.servers.postgres import Postgres

LONG = 3600.0  # seconds


def switches(request: pytest.FixtureRequest, kind: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """What stops the server, and what starts it again on the same files."""
    server: Postgres | Mariadb | Etcd = request.getfixturevalue(kind)
    return (server.stop, server.start) if isinstance(server, Postgres) else (server.process.stop, server.process.start)


async def fails(registry: ConnectionRegistry) -> None:
    """Every call says that it may be tried again, and nothing else."""
    fence = connection().fenced(1)
    calls = (
        lambda: registry.register_connection(connection("conn-2"), LONG),
        lambda: registry.renew_connection(fence, LONG),
        lambda: registry.release_connection(fence),
        lambda: registry.list_active_by_agent("agent"),
        lambda: registry.update_connection_stats([StatsReport(fence, Stats(1))] * 3),
        lambda: registry.forget_fences(0),
    )
    for call in calls:
        with pytest.raises(RegistryUnavailableError):
            await call()


@pytest.mark.parametrize("kind", ["postgres", "mariadb", "etcd"])
async def test_a_server_that_comes_back_is_used_again_and_has_forgotten_nothing(
    kind: str, request: pytest.FixtureRequest
) -> None:
    stop, start = switches(request, kind)
    async with open_registry(new_dsn(request, kind)) as registry:
        fence = await registered(registry, ttl=LONG)
        await trio.to_thread.run_sync(stop)
        try:
            await fails(registry)
        finally:
            await trio.to_thread.run_sync(start)
        assert isinstance(await registry.renew_connection(fence, LONG), Renewed)
        (lease,) = await registry.list_active_by_agent("agent")
        assert lease.fence == fence


async def test_after_an_outage_of_a_server_a_live_connection_is_listed_again(
    mariadb: Mariadb, request: pytest.FixtureRequest
) -> None:
    """All of it for real, and so in short: a lease of one second."""
    config = KeeperConfig(ttl=1.0, renew_interval=0.3, retry_interval=0.1, operation_timeout=30.0)
    async with open_registry(new_dsn(request, "mariadb")) as registry, trio.open_nursery() as nursery:
        healed = trio.Event()
        keeper = Keeper(registry, config, Random(1), lambda event: healed.set() if isinstance(event, Healed) else None)
        kept = await keeper.register(connection())
        assert isinstance(kept, Kept)
        nursery.start_soon(keeper.run)
        await trio.to_thread.run_sync(mariadb.process.stop)
        try:
            await trio.sleep_until(kept.trusted_until + config.ttl)
            assert not keeper.accepts(kept.fence)
        finally:
            await trio.to_thread.run_sync(mariadb.process.start)
        with trio.fail_after(60):
            await healed.wait()
        assert kept.epoch > 1
        await wait_listed(registry, 1)
        nursery.cancel_scope.cancel()
