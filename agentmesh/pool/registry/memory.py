"""The registry in memory: for a mesh with one router, and the model that the others are compared with."""

import time
from collections.abc import Callable, Iterator, Sequence

import attrs
import trio

from agentmesh.pool.registry.errors import AmbiguousAgentError, IdentifierError
from agentmesh.pool.registry.limits import RegistryLimits
from agentmesh.pool.registry.registry import ConnectionRegistry
from agentmesh.pool.registry.rules import NO_EPOCH, Granted, Remembered, decide
from agentmesh.pool.registry.values import (
    ConnectionLease,
    Fence,
    Lapsed,
    NewConnection,
    Registered,
    RegisterOutcome,
    Released,
    ReleaseOutcome,
    Renewed,
    RenewOutcome,
    Stats,
    StatsOutcome,
    StatsReport,
    Superseded,
    Updated,
    check_retention,
    check_ttl,
    fold,
)
from agentmesh.protocols.pool import ConnEpoch


@attrs.define
class _Row:
    """A connection that is listed until `expires_at`, and remembered after."""

    new: NewConnection
    epoch: ConnEpoch
    expires_at: float
    stats: Stats
    stats_at: float


@attrs.define
class _Agent:
    """Never forgotten: no epoch of it may come again. There are as many as were ever let in."""

    rows: dict[str, _Row] = attrs.field(factory=dict[str, _Row])  # by connection ID
    floor: int = NO_EPOCH  # no row has the epochs up to this one any more


class MemoryRegistry(ConnectionRegistry):
    """Args:
    clock: gives seconds; it is the store's clock.
    """

    def __init__(self, limits: RegistryLimits | None = None, clock: Callable[[], float] = time.time) -> None:
        self.limits, self._clock = limits or RegistryLimits(), clock
        self._agents: dict[str, _Agent] = {}
        self._spellings: dict[str, set[str]] = {}

    async def register_connection(
        self, new: NewConnection, ttl: float, proposed: ConnEpoch | None = None
    ) -> RegisterOutcome:
        check_ttl(ttl, self.limits.max_ttl)
        await trio.lowlevel.checkpoint()
        now, agent = self._clock(), self._agents.get(new.agent_id) or _Agent()
        row = agent.rows.get(new.connection_id)
        listed = sum(row.expires_at > now for row in agent.rows.values())
        found = None if row is None else _remembered(row, now)
        decision = decide(proposed, found, agent.floor, listed, self.limits)
        if not isinstance(decision, Granted):
            return decision
        agent.rows[new.connection_id] = _Row(new, decision.epoch, now + ttl, Stats(), now)
        self._agents[new.agent_id] = agent
        self._spellings.setdefault(fold(new.agent_id), set()).add(new.agent_id)
        ended = sorted((row for row in agent.rows.values() if row.expires_at <= now), key=lambda row: row.expires_at)
        _forget(agent, ended[: max(0, len(ended) - self.limits.max_fences_per_agent)])
        return Registered(new.fenced(decision.epoch), now + ttl, decision.replaced)

    async def renew_connection(self, fence: Fence, ttl: float) -> RenewOutcome:
        check_ttl(ttl, self.limits.max_ttl)
        await trio.lowlevel.checkpoint()
        row, now = self._fenced(fence), self._clock()
        if not isinstance(row, _Row):
            return row
        row.expires_at = now + ttl
        return Renewed(row.expires_at)

    async def release_connection(self, fence: Fence) -> ReleaseOutcome:
        await trio.lowlevel.checkpoint()
        row = self._fenced(fence)
        if not isinstance(row, _Row):
            return row
        row.expires_at = self._clock()
        return Released()

    async def list_active_by_agent(self, agent_id: str, *, exact: bool = False) -> tuple[ConnectionLease, ...]:
        await trio.lowlevel.checkpoint()
        now = self._clock()
        spellings = [agent_id] if exact else sorted(self._spellings.get(fold(agent_id), ()))
        found = {spelt: leases for spelt in spellings if (leases := list(self._listed(spelt, now)))}
        if len(found) > 1:
            raise AmbiguousAgentError(tuple(found))
        leases = [lease for leases in found.values() for lease in leases]
        return tuple(sorted(leases, key=lambda lease: lease.connection_id)[: self.limits.max_listed])

    async def update_connection_stats(self, reports: Sequence[StatsReport]) -> tuple[StatsOutcome, ...]:
        if len(reports) > self.limits.max_batch:
            raise IdentifierError(f"more than {self.limits.max_batch} reports")
        await trio.lowlevel.checkpoint()
        return tuple(self._update(report) for report in reports)

    async def forget_fences(self, retention: float) -> int:
        check_retention(retention)
        await trio.lowlevel.checkpoint()
        before, forgotten = self._clock() - retention, 0
        for agent in self._agents.values():
            ended = [row for row in agent.rows.values() if row.expires_at <= before]
            _forget(agent, ended)
            forgotten += len(ended)
        return forgotten

    def remembered(self, agent_id: str) -> int:
        """How many connections of an agent are listed, or ended and not forgotten yet."""
        agent = self._agents.get(agent_id)
        return len(agent.rows) if agent else 0

    def _fenced(self, fence: Fence) -> "_Row | Lapsed | Superseded":
        """The row that `fence` may change, or why it may not."""
        agent = self._agents.get(fence.agent_id)
        row = agent.rows.get(fence.connection_id) if agent else None
        if row is not None and row.epoch > fence.epoch:
            return Superseded(row.epoch)
        if row is None or row.epoch < fence.epoch or row.expires_at <= self._clock():
            return Lapsed()
        return row

    def _update(self, report: StatsReport) -> StatsOutcome:
        row = self._fenced(report.fence)
        if not isinstance(row, _Row):
            return row
        row.stats, row.stats_at = report.stats, self._clock()
        return Updated()

    def _listed(self, agent_id: str, now: float) -> Iterator[ConnectionLease]:
        agent = self._agents.get(agent_id)
        for row in agent.rows.values() if agent else ():
            if row.expires_at > now:
                yield _lease(row, now)


def _remembered(row: _Row, now: float) -> Remembered:
    return Remembered(row.epoch, row.new.server_node_id, row.expires_at if row.expires_at > now else None)


def _forget(agent: _Agent, rows: Sequence[_Row]) -> None:
    for row in rows:
        del agent.rows[row.new.connection_id]
        agent.floor = max(agent.floor, row.epoch)


def _lease(row: _Row, now: float) -> ConnectionLease:
    return ConnectionLease(
        agent_id=row.new.agent_id,
        instance_id=row.new.instance_id,
        connection_id=row.new.connection_id,
        server_node_id=row.new.server_node_id,
        connection_epoch=row.epoch,
        capabilities=row.new.capabilities,
        active_streams=row.stats.active_streams,
        health_score=row.stats.health_score,
        expires_at=row.expires_at,
        stats_age=now - row.stats_at,
    )
