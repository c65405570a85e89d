"""A registry that need not answer when its router starts: the router goes without, and has it as soon as it does."""

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio

from agentmesh.pool.registry.errors import RegistryUnavailableError
from agentmesh.pool.registry.limits import RegistryLimits
from agentmesh.pool.registry.registry import ConnectionRegistry
from agentmesh.pool.registry.values import (
    ConnectionLease,
    Fence,
    NewConnection,
    RegisterOutcome,
    ReleaseOutcome,
    RenewOutcome,
    StatsOutcome,
    StatsReport,
)
from agentmesh.protocols.pool import ConnEpoch
from agentmesh.runtime.nursery import open_background

logger = logging.getLogger(__name__)

RETRY_INTERVAL = 5.0  # seconds between two tries to open it

Open = Callable[[RegistryLimits], AbstractAsyncContextManager[ConnectionRegistry]]


class LateRegistry(ConnectionRegistry):
    """Made by `open_late_registry`. Until the store answers, every call raises RegistryUnavailableError.

    Args:
        open_registry: opens it; raises RegistryUnavailableError while the store does not answer.
    """

    def __init__(self, open_registry: Open, limits: RegistryLimits) -> None:
        self._open = open_registry
        self.limits = limits
        self._registry: ConnectionRegistry | None = None

    @property
    def is_open(self) -> bool:
        """Whether the store has answered."""
        return self._registry is not None

    async def keep(self, task_status: trio.TaskStatus[None]) -> None:
        """Have it open until cancelled; it is started when the first try has come to something."""
        while True:
            try:
                async with self._open(self.limits) as self._registry:
                    logger.info("the registry answers")
                    task_status.started()
                    await trio.sleep_forever()
            except RegistryUnavailableError as exc:
                logger.warning("the registry does not answer yet", extra={"reason": exc, "retry_in": RETRY_INTERVAL})
                task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
            await trio.sleep(RETRY_INTERVAL)

    async def register_connection(
        self, new: NewConnection, ttl: float, proposed: ConnEpoch | None = None
    ) -> RegisterOutcome:
        return await self._known().register_connection(new, ttl, proposed)

    async def renew_connection(self, fence: Fence, ttl: float) -> RenewOutcome:
        return await self._known().renew_connection(fence, ttl)

    async def release_connection(self, fence: Fence) -> ReleaseOutcome:
        return await self._known().release_connection(fence)

    async def list_active_by_agent(self, agent_id: str, *, exact: bool = False) -> tuple[ConnectionLease, ...]:
        return await self._known().list_active_by_agent(agent_id, exact=exact)

    async def update_connection_stats(self, reports: Sequence[StatsReport]) -> tuple[StatsOutcome, ...]:
        return await self._known().update_connection_stats(reports)

    async def forget_fences(self, retention: float) -> int:
        return await self._known().forget_fences(retention)

    def _known(self) -> ConnectionRegistry:
        if self._registry is None:
            raise RegistryUnavailableError("it has not answered since this router was started")
        self._registry.limits = self.limits  # which may have been changed
        return self._registry


@asynccontextmanager
async def open_late_registry(open_registry: Open, limits: RegistryLimits) -> AsyncGenerator[LateRegistry]:
    """A registry that is there as soon as its store answers, for the length of the block.

    Raises:
        ExceptionGroup: of what `open_registry` raises on entering, but for a store that does not answer.
    """
    registry = LateRegistry(open_registry, limits)
    async with open_background() as nursery:
        await nursery.start(registry.keep)
        yield registry
