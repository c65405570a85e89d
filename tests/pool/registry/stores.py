"""A registry on each kind of store, whose clock a test moves."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Set
from contextlib import asynccontextmanager

import httpx
from sqlalchemy import Connection, delete, func, select, update

from agentmesh.pool.registry import ConnectionRegistry, MemoryRegistry, RegistryLimits
from agentmesh.pool.registry.dsn import EtcdCluster, parse_registry_dsn, parse_sql_dsn
from agentmesh.pool.registry.etcd import EtcdRegistry
from agentmesh.pool.registry.etcd_client import ANSWER_TIMEOUT, EtcdClient, get_below
from agentmesh.pool.registry.etcd_client import delete as delete_key
from agentmesh.pool.registry.etcd_keys import AgentKeys, read_connection
from agentmesh.pool.registry.sql import SqlRegistry, make_tables
from agentmesh.pool.registry.sql_database import SqlDatabase, open_sql_database
from agentmesh.pool.registry.sql_schema import connections, metadata

Keys = Set[tuple[str, str]]

prepared: set[str] = set()  # databases where the tables are there


class Store(ABC):
    """A store with nothing in it.

    Attributes:
        registry: on it.
    """

    @property
    @abstractmethod
    def registry(self) -> ConnectionRegistry: ...

    @abstractmethod
    async def advance(self, seconds: float, ended: Keys | None = None) -> None:
        """Have the store's clock go on.

        Args:
            ended: the agents and IDs of connections whose leases have run out then; None: to be found out.
        """

    async def forget_all(self) -> int:
        """Forget the epochs of all connections that have ended. How many."""
        return await self.registry.forget_fences(0)

    def of_router(self, skew: float) -> ConnectionRegistry:
        """That of a router whose clock is off by `skew` seconds, on the same store."""
        del skew
        return self.registry

    @abstractmethod
    async def remembered(self, agent_id: str) -> int:
        """How many connections of an agent the store keeps anything of, one by one."""


class MemoryStore(Store):
    def __init__(self, limits: RegistryLimits) -> None:
        self._now = 1_800_000_000.0
        self._registry = MemoryRegistry(limits, lambda: self._now)

    @property
    def registry(self) -> MemoryRegistry:
        return self._registry

    async def advance(self, seconds: float, ended: Keys | None = None) -> None:
        self._now += seconds

    async def remembered(self, agent_id: str) -> int:
        return self.registry.remembered(agent_id)


@asynccontextmanager
async def memory_store(limits: RegistryLimits) -> AsyncGenerator[Store]:
    yield MemoryStore(limits)


class SqlStore(Store):
    """Its clock goes on by every instant in it going back."""

    def __init__(self, registry: SqlRegistry, database: SqlDatabase) -> None:
        self._registry, self._database = registry, database

    @property
    def registry(self) -> SqlRegistry:
        return self._registry

    async def advance(self, seconds: float, ended: Keys | None = None) -> None:
        past = round(seconds * 1000)
        rows = connections.c
        moved = update(connections).values(expires_at=rows.expires_at - past, stats_at=rows.stats_at - past)
        await self._database.write(lambda connection: connection.execute(moved).rowcount)

    async def remembered(self, agent_id: str) -> int:
        count = select(func.count()).where(connections.c.agent_id == agent_id)
        return await self._database.read(lambda connection: int(connection.execute(count).scalar_one()))


@asynccontextmanager
async def sql_store(limits: RegistryLimits, dsn: str) -> AsyncGenerator[Store]:
    """On the tables in a database, which are emptied first, and made if they are not there."""
    async with open_sql_database(parse_sql_dsn(dsn)) as database:
        if dsn not in prepared:
            await make_tables(database)
            prepared.add(dsn)
        await database.write(empty)
        yield SqlStore(SqlRegistry(database, limits), database)


class EtcdStore(Store):
    """Its clock goes on by the leases being revoked that would have run out."""

    def __init__(self, client: EtcdClient, prefix: str, limits: RegistryLimits) -> None:
        self._client, self._prefix, self._now = client, prefix, 1_800_000_000.0
        self._registry = EtcdRegistry(client, prefix, limits, lambda: self._now)

    @property
    def registry(self) -> EtcdRegistry:
        return self._registry

    async def advance(self, seconds: float, ended: Keys | None = None) -> None:
        self._now += seconds
        (found,) = await self._client.read(get_below(f"{self._prefix}/agents/"))
        for kv in found.kvs:
            if "/connections/" not in kv.key:
                continue
            agent_id, _, connection_id = kv.key.removeprefix(f"{self._prefix}/agents/").split("/")
            is_over = read_connection(kv, None, self._now).expires_at <= self._now
            if is_over if ended is None else (agent_id, connection_id) in ended:
                await self._client.revoke(kv.lease)

    async def forget_all(self) -> int:
        """As a router does whose clock is far ahead: epochs are as old as routers' clocks said."""
        return await self.of_router(1e6).forget_fences(0)

    def of_router(self, skew: float) -> EtcdRegistry:
        return EtcdRegistry(self._client, self._prefix, self._registry.limits, lambda: self._now + skew)

    async def remembered(self, agent_id: str) -> int:
        (found,) = await self._client.read(get_below(AgentKeys(self._prefix, agent_id).epochs))
        return found.count


@asynccontextmanager
async def etcd_store(limits: RegistryLimits, dsn: str) -> AsyncGenerator[Store]:
    """Below a prefix, where everything is deleted first."""
    cluster = parse_registry_dsn(dsn)
    assert isinstance(cluster, EtcdCluster)
    async with httpx.AsyncClient(trust_env=False, timeout=ANSWER_TIMEOUT) as http:
        client = EtcdClient(http, cluster.endpoints)
        (found,) = await client.read(get_below(f"{cluster.prefix}/"))
        await client.write_if([], *(delete_key(kv.key) for kv in found.kvs))
        yield EtcdStore(client, cluster.prefix, limits)


def empty(connection: Connection) -> None:
    for table in metadata.tables.values():
        connection.execute(delete(table))
