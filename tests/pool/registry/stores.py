"""A registry on each kind of store, whose clock a test moves."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from agentmesh.pool.registry import ConnectionRegistry, MemoryRegistry, RegistryLimits


class Store(ABC):
    """A store with nothing in it.

    Attributes:
        registry: on it.
    """

    @property
    @abstractmethod
    def registry(self) -> ConnectionRegistry: ...

    @abstractmethod
    async def advance(self, seconds: float) -> None:
        """Have the store's clock go on."""

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

    async def advance(self, seconds: float) -> None:
        self._now += seconds

    async def remembered(self, agent_id: str) -> int:
        return self.registry.remembered(agent_id)


@asynccontextmanager
async def memory_store(limits: RegistryLimits) -> AsyncGenerator[Store]:
    yield MemoryStore(limits)
