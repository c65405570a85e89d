"""The connections of a router, listed in the registry of the cluster: one epoch from there to the wire."""

from collections.abc import Callable
from random import Random

import trio

from agentmesh.pool.registry import (
    ConnectionRegistry,
    Fence,
    Full,
    Healed,
    Held,
    Keeper,
    KeeperConfig,
    Kept,
    Lost,
    NewConnection,
    RegistryError,
    Stats,
)
from agentmesh.pool.registry.keeper_config import KeeperEvent, Unlisted
from agentmesh.pool.router.audit import Action
from agentmesh.pool.router.claims import Claim, ConnectionKey, Reason, Refusal
from agentmesh.pool.router.connection import Connection, State
from agentmesh.pool.router.remotes import Remote
from agentmesh.pool.router.score import health_score
from agentmesh.pool.router.selection import best_rtt_of, load_of
from agentmesh.pool.router.table import Pool, PoolTable
from agentmesh.protocols.pool import ConnEpoch

RETRY_AFTER_AWAY = 5.0  # seconds


class Lister:
    """What a `PoolService` registers its connections with, when there are other routers.

    Args:
        registry: of the cluster.
        table: of this router.
        config: how leases are kept.
        rng: spreads renewals.
    """

    def __init__(self, registry: ConnectionRegistry, table: PoolTable, config: KeeperConfig, rng: Random) -> None:
        self.keeper = Keeper(registry, config, rng, self._hear)
        self._registry = registry
        self._table = table
        self._config = config
        self._on_lost: Callable[[Connection], None] = lambda _: None

    def watch(self, on_lost: Callable[[Connection], None]) -> None:
        """Have `on_lost` called, synchronously, with a connection that lives on elsewhere. It must not raise."""
        self._on_lost = on_lost

    async def run(self) -> None:
        """Keep the leases, and tell how busy the connections are, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.keeper.run)
            while True:
                await trio.sleep(self._config.stats_interval / 2)
                self._note_stats(trio.current_time())

    async def register(self, claim: Claim) -> ConnEpoch | Refusal:
        """List a connection. The epoch is the registry's; it is not below the one that was proposed."""
        new = NewConnection(
            agent_id=claim.agent_id,
            connection_id=claim.connection_id,
            instance_id=claim.instance_id,
            server_node_id=self._table.node_id,
            capabilities=tuple(sorted(claim.capabilities)),
        )
        try:
            outcome = await self.keeper.register(new, claim.epoch or None)
        except RegistryError:
            return Refusal(Reason.REGISTRY_UNAVAILABLE, RETRY_AFTER_AWAY)
        match outcome:
            case Kept():
                return outcome.epoch
            case Full():
                return Refusal(Reason.MAX_CONNECTIONS_PER_AGENT, RETRY_AFTER_AWAY)
            case Held():
                return Refusal(Reason.HELD, RETRY_AFTER_AWAY)
            case _:
                return Refusal(Reason.STALE_EPOCH)

    async def release(self, key: ConnectionKey) -> None:
        """List it no more."""
        for kept in self.keeper:
            if kept.fence == _fence(key):
                await self.keeper.release(kept)

    def accepts(self, key: ConnectionKey) -> bool:
        """Whether a stream that another router sends may be opened on this life of a connection."""
        return self.keeper.accepts(_fence(key))

    async def remotes(self, agent_id: str) -> tuple[Remote, ...]:
        """The connections of an agent to other routers.

        Args:
            agent_id: in any case.
        Raises:
            AmbiguousAgentError: several agents are called so.
            RegistryError: as `ConnectionRegistry.list_active_by_agent`.
        """
        leases = await self._registry.list_active_by_agent(agent_id)
        return tuple(
            Remote(
                agent_id=lease.agent_id,
                connection_id=lease.connection_id,
                epoch=lease.connection_epoch,
                server_node_id=lease.server_node_id,
                capabilities=frozenset(lease.capabilities),
                active_streams=lease.active_streams,
                health_score=lease.health_score,
                stats_age=lease.stats_age,
            )
            for lease in leases
            if lease.server_node_id != self._table.node_id
        )

    def _note_stats(self, now: float) -> None:
        for kept in self.keeper:
            pool = self._table.get(kept.fence.agent_id)
            connection = pool.by_id.get(kept.fence.connection_id) if pool else None
            if pool is not None and connection is not None:
                kept.stats = Stats(connection.active_streams, _health(pool, connection, now))

    def _hear(self, event: KeeperEvent) -> None:
        fence = event.before if isinstance(event, Healed) else event.kept.fence
        pool = self._table.get(fence.agent_id)
        connection = pool.by_id.get(fence.connection_id) if pool else None
        if connection is None or connection.epoch != fence.epoch:
            return
        now = trio.current_time()
        match event:
            case Healed():
                self._table.renumber(connection, event.kept.epoch)
                self._table.note(Action.HEALED, connection, now)
            case Lost():
                self._table.note(Action.SUPERSEDED, connection, now)
                self._on_lost(connection)
            case Unlisted(_, limit):
                self._table.note(Action.UNLISTED, connection, now, limit)


def _health(pool: Pool, connection: Connection, now: float) -> int:
    if connection.state is not State.OPEN:
        return 0  # it takes no streams
    best = best_rtt_of([load_of(one, now) for one in pool.connections])
    return health_score(load_of(connection, now), best)


def _fence(key: ConnectionKey) -> Fence:
    return Fence(key.agent_id, key.connection_id, key.epoch)
