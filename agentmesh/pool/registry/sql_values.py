"""Rows and parameters, from values and back."""

import json
from typing import Any

from sqlalchemy import RowMapping

from agentmesh.pool.registry.errors import RegistryRefusedError
from agentmesh.pool.registry.rules import Remembered
from agentmesh.pool.registry.values import ConnectionLease, Fence, NewConnection, Stats, fold
from agentmesh.protocols.pool import ConnEpoch


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def key_of(connection: NewConnection | Fence) -> dict[str, Any]:
    """The parameters that name its row."""
    return {"of_agent": connection.agent_id, "of_connection": connection.connection_id}


def values_of(new: NewConnection, epoch: ConnEpoch, expires_at: int, now: int) -> dict[str, Any]:
    """All columns of the row of a connection whose life begins."""
    fresh = Stats()
    return {
        "agent_id": new.agent_id,
        "connection_id": new.connection_id,
        "instance_id": new.instance_id,
        "server_node_id": new.server_node_id,
        "connection_epoch": epoch,
        "capabilities": json.dumps(new.capabilities),
        "active_streams": fresh.active_streams,
        "health_score": fresh.health_score,
        "expires_at": expires_at,
        "agent_key": fold(new.agent_id),
        "stats_at": now,
    }


def remembered_of(row: RowMapping, now: int) -> Remembered:
    expires_at = row["expires_at"]
    return Remembered(row["connection_epoch"], row["server_node_id"], expires_at / 1000 if expires_at > now else None)


def lease_of(row: RowMapping) -> ConnectionLease:
    """Raises RegistryRefusedError when its capabilities are no list."""
    try:
        capabilities = tuple(map(str, json.loads(row["capabilities"])))
    except (TypeError, ValueError):
        raise RegistryRefusedError("a row of agent_connections has capabilities that are no list") from None
    return ConnectionLease(
        agent_id=row["agent_id"],
        instance_id=row["instance_id"],
        connection_id=row["connection_id"],
        server_node_id=row["server_node_id"],
        connection_epoch=ConnEpoch(row["connection_epoch"]),
        capabilities=capabilities,
        active_streams=row["active_streams"],
        health_score=row["health_score"],
        expires_at=row["expires_at"] / 1000,
        stats_age=max(0, row["now"] - row["stats_at"]) / 1000,
    )
