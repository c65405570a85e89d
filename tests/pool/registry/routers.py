"""A router with a keeper that runs, on a registry in memory that can be faulty."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random

import attrs
import trio

from agentmesh.pool.registry import Keeper, KeeperConfig, KeeperEvent, Kept, MemoryRegistry
from tests.pool.registry.faulty import FaultyRegistry
from tests.pool.registry.test_contract import connection

CONFIG = KeeperConfig()
TRUST = CONFIG.trust * CONFIG.ttl  # seconds


@attrs.define
class Router:
    """Attributes:
    events: all that its keeper told.
    """

    registry: FaultyRegistry
    keeper: Keeper
    events: list[KeeperEvent]

    async def keep(self, name: str = "conn-1") -> Kept:
        """Register a connection where it has to succeed."""
        kept = await self.keeper.register(connection(name))
        assert isinstance(kept, Kept), kept
        return kept


@asynccontextmanager
async def router_on(store: MemoryRegistry, config: KeeperConfig = CONFIG) -> AsyncGenerator[Router]:
    registry, events = FaultyRegistry(store), list[KeeperEvent]()
    keeper = Keeper(registry, config, Random(1), events.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run)
        yield Router(registry, keeper, events)
        nursery.cancel_scope.cancel()


async def epochs_listed(store: MemoryRegistry) -> list[int]:
    return [lease.connection_epoch for lease in await store.list_active_by_agent("agent")]
