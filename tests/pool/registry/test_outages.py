"""Servers that go away and come back under a registry that is open."""

from collections.abc import Callable

import pytest
import trio

from agentmesh.pool.registry import (
    ConnectionRegistry,
    RegistryUnavailableError,
    Renewed,
    Stats,
    StatsReport,
)
from agentmesh.pool.registry.opening import open_registry
from tests.pool.registry.conftest import new_dsn
from tests.pool.registry.test_contract import connection
from tests.pool.registry.test_stores import registered
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
