"""Where in etcd things are, and how they are written down. Epochs are decimal strings: JSON's readers round numbers.

…/agents/{agent_id}/connections/{connection_id}          who serves it; hangs on the lease
…/agents/{agent_id}/connection-stats/{connection_id}     how busy it is; hangs on the same
…/agents/{agent_id}/connection-epochs/{connection_id}    its latest epoch; stays
…/agents/{agent_id}/connection-floor                     the highest epoch that was forgotten; stays, and is written
                                                         with every registration, so that these come one by one
…/agent-names/{agent_id in lower case}/{agent_id}        how the agent is spelt; stays
"""

import json
from typing import Any

import attrs

from agentmesh.pool.registry.errors import RegistryRefusedError
from agentmesh.pool.registry.etcd_client import KeyValue
from agentmesh.pool.registry.rules import NO_EPOCH
from agentmesh.pool.registry.values import ConnectionLease, NewConnection, Stats, fold
from agentmesh.protocols.pool import ConnEpoch


@attrs.frozen
class AgentKeys:
    """The keys of one agent."""

    prefix: str
    agent_id: str

    @property
    def connections(self) -> str:
        return f"{self.prefix}/agents/{self.agent_id}/connections/"

    @property
    def stats(self) -> str:
        return f"{self.prefix}/agents/{self.agent_id}/connection-stats/"

    @property
    def epochs(self) -> str:
        return f"{self.prefix}/agents/{self.agent_id}/connection-epochs/"

    @property
    def floor(self) -> str:
        return f"{self.prefix}/agents/{self.agent_id}/connection-floor"

    @property
    def name(self) -> str:
        return f"{names(self.prefix, self.agent_id)}{self.agent_id}"


def names(prefix: str, agent_id: str) -> str:
    """Below it are all spellings of an agent's ID."""
    return f"{prefix}/agent-names/{fold(agent_id)}/"


def last(key: str) -> str:
    """The ID at the end of a key."""
    return key.rpartition("/")[2]


def write_connection(new: NewConnection, epoch: ConnEpoch, ttl: int, expires_at: float) -> bytes:
    return _write(attrs.asdict(new) | {"connection_epoch": str(epoch), "ttl": ttl, "expires_at": expires_at})


def moved(kv: KeyValue, ttl: int, expires_at: float) -> bytes:
    """The value of a connection that expires at another time."""
    return _write(_read(kv) | {"ttl": ttl, "expires_at": expires_at})


def asked_ttl(kv: KeyValue) -> int:
    """The seconds that a connection's lease was to last when it was granted; 0 when nothing says."""
    ttl = _read(kv).get("ttl")
    return ttl if isinstance(ttl, int) else 0


def read_connection(kv: KeyValue, stats: KeyValue | None, now: float) -> ConnectionLease:
    """Raises RegistryRefusedError when the value is none of ours."""
    fields = _read(kv)
    busy = _read(stats) if stats is not None else {"at": now}
    fresh = Stats()
    try:
        return ConnectionLease(
            agent_id=str(fields["agent_id"]),
            instance_id=str(fields["instance_id"]),
            connection_id=str(fields["connection_id"]),
            server_node_id=str(fields["server_node_id"]),
            connection_epoch=ConnEpoch(int(fields["connection_epoch"])),
            capabilities=tuple(map(str, fields["capabilities"])),
            active_streams=int(busy.get("active_streams", fresh.active_streams)),
            health_score=int(busy.get("health_score", fresh.health_score)),
            expires_at=float(fields["expires_at"]),
            stats_age=max(0.0, now - float(busy["at"])),
        )
    except (KeyError, TypeError, ValueError):
        raise _not_ours(kv) from None


def write_stats(stats: Stats, now: float) -> bytes:
    return _write({"active_streams": stats.active_streams, "health_score": stats.health_score, "at": now})


def write_epoch(epoch: ConnEpoch, now: float) -> bytes:
    return _write({"connection_epoch": str(epoch), "at": now})


def read_epoch(kv: KeyValue) -> tuple[ConnEpoch, float]:
    """The epoch, and when it was written. Raises RegistryRefusedError."""
    fields = _read(kv)
    try:
        return ConnEpoch(int(fields["connection_epoch"])), float(fields["at"])
    except (KeyError, TypeError, ValueError):
        raise _not_ours(kv) from None


def write_floor(floor: int) -> bytes:
    return str(floor).encode()


def read_floor(kv: KeyValue | None) -> int:
    """Raises RegistryRefusedError."""
    if kv is None:
        return NO_EPOCH
    try:
        return int(kv.value)
    except ValueError:
        raise _not_ours(kv) from None


def _write(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _read(kv: KeyValue) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = dict(json.loads(kv.value))
    except (TypeError, ValueError):
        raise _not_ours(kv) from None
    return fields


def _not_ours(kv: KeyValue) -> RegistryRefusedError:
    return RegistryRefusedError(f"{kv.key} in etcd is none of a registry's")
