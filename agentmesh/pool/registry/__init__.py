"""Which routers serve which agent: leases of pooled connections, kept where every router of the mesh can see them.

    registry    the five operations, whatever store is behind them
    values      what they take and answer
    rules       what a registration comes to
    memory      for one router
    sql         in SQLite, PostgreSQL, MySQL or MariaDB
    etcd        in etcd version 3
    legacy      what becomes of the leases of before
    opening     `open_registry`, for whichever of these a DSN names; not taken in here, since it loads all of them
    late        one that need not answer when its router starts
    keeper      keeping a router's connections listed, and knowing when not to rely on it
    limits      every bound
    errors      what a call ends in beside its outcomes

A lease is for the life of one connection: agent, connection and epoch. Each change names all three and does nothing
once a later life has begun, so that a router that was away for long can harm nobody. Epochs are minted by the store.
"""

from agentmesh.pool.registry.errors import (
    AmbiguousAgentError,
    EpochsExhaustedError,
    IdentifierError,
    RegistryError,
    RegistryRefusedError,
    RegistryUnavailableError,
)
from agentmesh.pool.registry.keeper import Keeper
from agentmesh.pool.registry.keeper_config import Healed, KeeperConfig, KeeperEvent, Lost, Result, Unlisted
from agentmesh.pool.registry.keeping import Kept
from agentmesh.pool.registry.limits import RegistryLimits
from agentmesh.pool.registry.memory import MemoryRegistry
from agentmesh.pool.registry.registry import ConnectionRegistry
from agentmesh.pool.registry.values import (
    ConnectionLease,
    Fence,
    Full,
    Held,
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
)

__all__ = [
    "AmbiguousAgentError",
    "ConnectionLease",
    "ConnectionRegistry",
    "EpochsExhaustedError",
    "Fence",
    "Full",
    "Healed",
    "Held",
    "IdentifierError",
    "Keeper",
    "KeeperConfig",
    "KeeperEvent",
    "Kept",
    "Lapsed",
    "Lost",
    "MemoryRegistry",
    "NewConnection",
    "RegisterOutcome",
    "Registered",
    "RegistryError",
    "RegistryLimits",
    "RegistryRefusedError",
    "RegistryUnavailableError",
    "ReleaseOutcome",
    "Released",
    "RenewOutcome",
    "Renewed",
    "Result",
    "Stats",
    "StatsOutcome",
    "StatsReport",
    "Superseded",
    "Unlisted",
    "Updated",
]
