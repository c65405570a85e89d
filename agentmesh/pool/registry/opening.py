"""Opening the registry that a DSN names."""

from contextlib import AbstractAsyncContextManager

from agentmesh.pool.registry.dsn import EtcdCluster, parse_registry_dsn
from agentmesh.pool.registry.etcd import open_etcd_registry
from agentmesh.pool.registry.limits import RegistryLimits
from agentmesh.pool.registry.registry import ConnectionRegistry
from agentmesh.pool.registry.sql import open_sql_registry


def open_registry(dsn: str, limits: RegistryLimits | None = None) -> AbstractAsyncContextManager[ConnectionRegistry]:
    """The registry in a store that routers share, open for the length of an `async with`.

    Args:
        dsn: an SQLite file's path, postgresql://…, mysql://…, mariadb://…, or etcd://host:port,host:port/prefix. What
            it lacks is made on entering, and leases of before are copied (`legacy`).
    Raises:
        ValueError: `dsn` names no store; on entering, MissingExtraError: one whose driver is not installed.
        OSError: on entering, SQLite's file can be neither opened nor created.
        RegistryUnavailableError: on entering, the store does not answer.
    """
    parsed = parse_registry_dsn(dsn)
    return open_etcd_registry(parsed, limits) if isinstance(parsed, EtcdCluster) else open_sql_registry(parsed, limits)
