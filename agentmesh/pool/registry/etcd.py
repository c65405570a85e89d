"""The registry in etcd. A connection hangs on an etcd lease of its own, so that etcd's clock ends it.

A change reads, decides, and writes on condition that the connection's epoch, and the lease that it hangs on, are those
that were read. Neither renewing nor reporting writes the epoch, so the two never come in each other's way.
"""

import math
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import attrs
import httpx
import trio

from agentmesh.pool.registry import etcd_keys as keys
from agentmesh.pool.registry import etcd_legacy
from agentmesh.pool.registry.dsn import EtcdCluster
from agentmesh.pool.registry.errors import AmbiguousAgentError, IdentifierError, RegistryError, RegistryUnavailableError
from agentmesh.pool.registry.etcd_client import (
    ANSWER_TIMEOUT,
    EtcdClient,
    Json,
    KeyValue,
    LeaseGoneError,
    delete,
    get,
    get_below,
    put,
    unchanged,
    under_lease,
)
from agentmesh.pool.registry.etcd_fences import EtcdFences
from agentmesh.pool.registry.etcd_keys import AgentKeys
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
    StatsOutcome,
    StatsReport,
    Superseded,
    Updated,
    check_retention,
    check_ttl,
    is_identifier,
)
from agentmesh.protocols.pool import ConnEpoch

MAX_SPELLINGS = 16  # of one agent's ID, that are looked at
REVOKE_TIMEOUT = 1.0  # seconds to end a lease that came to nothing
MAX_AT_ONCE = 8  # reports on their way
MAX_CONNECTIONS = 16  # to etcd


@attrs.frozen
class _Owned:
    """A connection that a fence owns, as it was read."""

    epoch: KeyValue
    connection: KeyValue
    stats: KeyValue | None

    @property
    def unchanged(self) -> tuple[Json, ...]:
        """Holds while the fence owns it, whatever was reported or renewed meanwhile."""
        return unchanged(self.epoch.key, self.epoch), under_lease(self.connection.key, self.connection.lease)


class EtcdRegistry(ConnectionRegistry):
    """Made by `open_etcd_registry`.

    Args:
        wall_clock: gives seconds since 1970. What it says is written down for people to read, and for `stats_age`.
    """

    def __init__(
        self, client: EtcdClient, prefix: str, limits: RegistryLimits, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._client, self._prefix, self._wall_clock = client, prefix, wall_clock
        self._fences = EtcdFences(client, prefix, wall_clock)
        self._registering = trio.Lock()  # our own registrations do not race each other
        self.limits = limits

    async def register_connection(
        self, new: NewConnection, ttl: float, proposed: ConnEpoch | None = None
    ) -> RegisterOutcome:
        check_ttl(ttl, self.limits.max_ttl)
        async with self._registering:
            for _ in range(self.limits.max_races):
                outcome = await self._register(new, ttl, proposed)
                if outcome is not None:
                    return outcome
        raise _too_many()

    async def _register(self, new: NewConnection, ttl: float, proposed: ConnEpoch | None) -> RegisterOutcome | None:
        """None: somebody else was faster."""
        agent = self._agent(new.agent_id)
        connection, epoch = agent.connections + new.connection_id, agent.epochs + new.connection_id
        read = await self._client.read(
            get(epoch),
            get(connection),
            get(agent.floor),
            get_below(agent.connections, count_only=True),
            get_below(agent.epochs, count_only=True),
        )
        was, listed, floor = (found.only for found in read[:3])
        found = None if was is None else self._remembered(was, listed)
        decision = decide(proposed, found, keys.read_floor(floor), read[3].count, self.limits)
        if not isinstance(decision, Granted):
            return decision
        asked = math.ceil(ttl)
        lease, granted = await self._client.grant(asked)
        now = self._wall_clock()
        written = False
        try:
            written = await self._client.write_if(
                [
                    unchanged(epoch, was),
                    under_lease(connection, listed.lease if listed else 0),
                    unchanged(agent.floor, floor),
                ],
                put(epoch, keys.write_epoch(decision.epoch, now)),
                put(connection, keys.write_connection(new, decision.epoch, asked, now + granted), lease),
                put(agent.floor, keys.write_floor(keys.read_floor(floor))),
                put(agent.name, b""),
                delete(agent.stats + new.connection_id),
            )
        except LeaseGoneError:  # a clock that runs very fast
            return None
        finally:
            if not written:
                await self._revoke(lease)
        if not written:
            return None
        surplus = read[4].count - read[3].count - self.limits.max_fences_per_agent
        if surplus > 0:
            await self._fences.forget_oldest(agent, surplus, read[3].count + 1)
        return Registered(new.fenced(decision.epoch), now + granted, decision.replaced)

    async def renew_connection(self, fence: Fence, ttl: float) -> RenewOutcome:
        check_ttl(ttl, self.limits.max_ttl)
        for _ in range(self.limits.max_races):
            owned = await self._owned(fence)
            if not isinstance(owned, _Owned):
                return owned
            with suppress(LeaseGoneError):  # Lapsed, unless somebody took it over: it is looked at once more
                expires_at = await self._lengthen(owned, math.ceil(ttl))
                if expires_at is not None:
                    return Renewed(expires_at)
        raise _too_many()

    async def _lengthen(self, owned: _Owned, ttl: int) -> float | None:
        """Have its lease begin anew, or a new one take its place. None: something changed since it was read."""
        lease, conditions, changes = owned.connection.lease, [*owned.unchanged], list[Json]()
        if ttl == keys.asked_ttl(owned.connection):
            granted = await self._client.keep_alive(lease)
        else:
            lease, granted = await self._client.grant(ttl)
            if owned.stats is not None:  # it has to move along
                conditions.append(unchanged(owned.stats.key, owned.stats))
                changes.append(put(owned.stats.key, owned.stats.value, lease))
        expires_at, written = self._wall_clock() + granted, False
        value = keys.moved(owned.connection, ttl, expires_at)
        try:
            written = await self._client.write_if(conditions, put(owned.connection.key, value, lease), *changes)
        finally:
            if not written and lease != owned.connection.lease:
                await self._revoke(lease)
        return expires_at if written else None

    async def release_connection(self, fence: Fence) -> ReleaseOutcome:
        stats = self._agent(fence.agent_id).stats + fence.connection_id
        for _ in range(self.limits.max_races):
            owned = await self._owned(fence)
            if not isinstance(owned, _Owned):
                return owned
            ended = put(owned.epoch.key, keys.write_epoch(fence.epoch, self._wall_clock()))
            if await self._client.write_if(owned.unchanged, ended, delete(owned.connection.key), delete(stats)):
                return Released()
        raise _too_many()

    async def list_active_by_agent(self, agent_id: str, *, exact: bool = False) -> tuple[ConnectionLease, ...]:
        if not is_identifier(agent_id):
            return ()
        spellings = [agent_id]
        if not exact:
            (found,) = await self._client.read(get_below(keys.names(self._prefix, agent_id), MAX_SPELLINGS))
            spellings = [keys.last(kv.key) for kv in found.kvs]
        by_agent = [leases for spelling in spellings if (leases := await self._listed(spelling))]
        if len(by_agent) > 1:
            raise AmbiguousAgentError(tuple(leases[0].agent_id for leases in by_agent))
        return by_agent[0] if by_agent else ()

    async def _listed(self, agent_id: str) -> tuple[ConnectionLease, ...]:
        agent, at_most = self._agent(agent_id), self.limits.max_listed
        connections, stats = await self._client.read(
            get_below(agent.connections, at_most), get_below(agent.stats, at_most)
        )
        busy = {keys.last(kv.key): kv for kv in stats.kvs}
        now = self._wall_clock()
        return tuple(keys.read_connection(kv, busy.get(keys.last(kv.key)), now) for kv in connections.kvs)

    async def update_connection_stats(self, reports: Sequence[StatsReport]) -> tuple[StatsOutcome, ...]:
        if len(reports) > self.limits.max_batch:
            raise IdentifierError(f"more than {self.limits.max_batch} reports")
        outcomes: dict[int, StatsOutcome] = {}
        failures: list[RegistryError] = []
        places = trio.CapacityLimiter(MAX_AT_ONCE)

        async def update(index: int, report: StatsReport) -> None:
            async with places:
                try:
                    outcomes[index] = await self._update(report)
                except RegistryError as exc:
                    failures.append(exc)

        async with trio.open_nursery() as nursery:
            for index, report in enumerate(reports):
                nursery.start_soon(update, index, report)
        if failures:
            raise failures[0]
        return tuple(outcomes[index] for index in range(len(reports)))

    async def _update(self, report: StatsReport) -> StatsOutcome:
        key = self._agent(report.fence.agent_id).stats + report.fence.connection_id
        for _ in range(self.limits.max_races):
            owned = await self._owned(report.fence)
            if not isinstance(owned, _Owned):
                return owned
            value = keys.write_stats(report.stats, self._wall_clock())
            with suppress(LeaseGoneError):
                if await self._client.write_if(owned.unchanged, put(key, value, owned.connection.lease)):
                    return Updated()
        raise _too_many()

    async def forget_fences(self, retention: float) -> int:
        check_retention(retention)
        return await self._fences.forget_older(retention)

    def _agent(self, agent_id: str) -> AgentKeys:
        return AgentKeys(self._prefix, agent_id)

    def _remembered(self, epoch: KeyValue, listed: KeyValue | None) -> Remembered:
        number = keys.read_epoch(epoch)[0]
        if listed is None:
            return Remembered(number, "", None)
        lease = keys.read_connection(listed, None, self._wall_clock())
        return Remembered(number, lease.server_node_id, lease.expires_at)

    async def _owned(self, fence: Fence) -> _Owned | Lapsed | Superseded:
        """What `fence` may change, or why it may not."""
        agent, name = self._agent(fence.agent_id), fence.connection_id
        read = await self._client.read(get(agent.epochs + name), get(agent.connections + name), get(agent.stats + name))
        epoch, connection, stats = (found.only for found in read)
        latest = keys.read_epoch(epoch)[0] if epoch is not None else ConnEpoch(NO_EPOCH)
        if latest > fence.epoch:
            return Superseded(latest)
        if epoch is None or connection is None or latest < fence.epoch:
            return Lapsed()
        return _Owned(epoch, connection, stats)

    async def _revoke(self, lease: int) -> None:
        """End a lease that nothing hangs on, if that is done quickly: else it ends by itself."""
        with trio.move_on_after(REVOKE_TIMEOUT, shield=True), suppress(RegistryError):
            await self._client.revoke(lease)


def _too_many() -> RegistryUnavailableError:
    return RegistryUnavailableError("too many callers change the same at once")


@asynccontextmanager
async def open_etcd_registry(
    cluster: EtcdCluster, limits: RegistryLimits | None = None, wall_clock: Callable[[], float] = time.time
) -> AsyncGenerator[EtcdRegistry]:
    """The registry in an etcd cluster. Leases of before are copied into it first.

    Raises:
        RegistryUnavailableError: etcd does not answer.
    """
    bounds = httpx.Limits(max_connections=MAX_CONNECTIONS)
    async with httpx.AsyncClient(trust_env=False, timeout=ANSWER_TIMEOUT, limits=bounds) as http:
        client = EtcdClient(http, cluster.endpoints, cluster.user)
        await etcd_legacy.migrate(client, cluster.prefix, wall_clock)
        yield EtcdRegistry(client, cluster.prefix, limits or RegistryLimits(), wall_clock)
