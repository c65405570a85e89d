"""A registry in memory that can be away, slow, or lose its answers."""

import enum
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import trio

from agentmesh.pool.registry import (
    ConnectionLease,
    ConnectionRegistry,
    Fence,
    NewConnection,
    Registered,
    RegisterOutcome,
    RegistryUnavailableError,
    ReleaseOutcome,
    Renewed,
    RenewOutcome,
    StatsOutcome,
    StatsReport,
)
from agentmesh.protocols.pool import ConnEpoch

T = TypeVar("T")


class Fault(enum.Enum):
    """What happens to calls."""

    NONE = enum.auto()
    AWAY = enum.auto()  # they fail, and do nothing
    SILENT = enum.auto()  # they do nothing, and are not answered while it lasts
    DEAF = enum.auto()  # they are done, and fail


class FaultyRegistry(ConnectionRegistry):
    """Attributes:
    calls: the names of all that were made.
    hit: the name of the calls that faults are about; "": all.
    stuck: the ID of a connection that is never renewed.
    late: while it is not set, calls are done and their answers are kept back.
    granted: until when each fence was given its lease, by whichever call, answered or not.
    """

    def __init__(self, registry: ConnectionRegistry) -> None:
        self._registry, self.limits = registry, registry.limits
        self.calls: list[str] = []
        self.fault, self.hit, self.stuck = Fault.NONE, "", ""
        self.late = trio.Event()
        self.late.set()
        self.granted: dict[Fence, float] = {}

    async def _call(self, call: Callable[[], Awaitable[T]], name: str) -> T:
        self.calls.append(name)
        if self.hit not in ("", name):
            return await call()
        if self.fault is Fault.SILENT:
            await trio.sleep_forever()
        if self.fault is Fault.AWAY:
            await trio.lowlevel.checkpoint()
            raise RegistryUnavailableError("away")
        answer = await call()
        if self.fault is Fault.DEAF:
            raise RegistryUnavailableError("the connection broke")
        await self.late.wait()
        return answer

    async def register_connection(
        self, new: NewConnection, ttl: float, proposed: ConnEpoch | None = None
    ) -> RegisterOutcome:
        async def register() -> RegisterOutcome:
            outcome = await self._registry.register_connection(new, ttl, proposed)
            if isinstance(outcome, Registered):
                self.granted[outcome.fence] = outcome.expires_at
            return outcome

        return await self._call(register, "register")

    async def renew_connection(self, fence: Fence, ttl: float) -> RenewOutcome:
        async def renew() -> RenewOutcome:
            if fence.connection_id == self.stuck:
                raise RegistryUnavailableError("somebody has locked its row")
            outcome = await self._registry.renew_connection(fence, ttl)
            if isinstance(outcome, Renewed):
                self.granted[fence] = outcome.expires_at
            return outcome

        return await self._call(renew, "renew")

    async def release_connection(self, fence: Fence) -> ReleaseOutcome:
        return await self._call(lambda: self._registry.release_connection(fence), "release")

    async def list_active_by_agent(self, agent_id: str, *, exact: bool = False) -> tuple[ConnectionLease, ...]:
        return await self._call(lambda: self._registry.list_active_by_agent(agent_id, exact=exact), "list")

    async def update_connection_stats(self, reports: Sequence[StatsReport]) -> tuple[StatsOutcome, ...]:
        return await self._call(lambda: self._registry.update_connection_stats(reports), "report")

    async def forget_fences(self, retention: float) -> int:
        return await self._call(lambda: self._registry.forget_fences(retention), "forget")
