"""What a router shows of its agents' connections, as JSON: the names are those of the API. A list is never null."""

from collections.abc import Mapping

from agentmesh.pool.router.connection import Connection
from agentmesh.pool.router.score import health_score, score
from agentmesh.pool.router.selection import best_rtt_of, healthy, is_online, load_of
from agentmesh.pool.router.table import Pool, PoolTable
from agentmesh.pool.router.trace import Trace


def agent_view(table: PoolTable, agent_id: str, now: float) -> dict[str, object]:
    """An agent: whether it is there, its processes, its connections, and the last decision on their number.

    An agent without connections is offline, which is no error.
    """
    pool = table.get(agent_id) or Pool(agent_id)
    well = healthy(pool, table.limits, now)
    connections = [connection_view(table, pool, one, one in well, now) for one in pool.connections]
    return {
        "agentId": agent_id,
        "online": is_online(pool, table.limits, now),
        "instanceCount": len(pool.instances),
        "connectionCount": len(connections),
        "activeStreams": pool.active_streams,
        "connections": connections,
        "scaling": _scaling(pool),
    }


def connection_view(
    table: PoolTable, pool: Pool, connection: Connection, is_healthy: bool, now: float
) -> dict[str, object]:
    """One connection. Its epoch is a number, and text beside it for whoever reads numbers as doubles."""
    load = load_of(connection, now)
    best = best_rtt_of([load_of(one, now) for one in pool.connections])
    return {
        "agentId": pool.agent_id,
        "instanceId": connection.claim.instance_id,
        "connectionId": connection.connection_id,
        "connectionEpoch": connection.epoch,
        "connectionEpochDecimal": str(connection.epoch),
        "serverNodeId": table.node_id,
        "state": connection.state.value,
        "healthy": is_healthy,
        "activeStreams": connection.active_streams,
        "healthScore": health_score(load, best),
        "score": score(load, best),
        "rttSeconds": connection.rtt,
        "queuedBytes": load.queued_bytes,
        "recentErrors": load.errors,
        "sinceHeartbeatSeconds": round(max(now - connection.heard_at, 0.0), 3),
        "ageSeconds": round(max(now - connection.registered_at, 0.0), 3),
        "capabilities": sorted(connection.claim.capabilities),
        "local": True,
    }


def trace_view(trace: Trace) -> dict[str, object]:
    """Why a connection was chosen, or none."""
    return {
        "traceId": trace.trace_id,
        "protocol": trace.protocol,
        "scope": trace.scope.value,
        "chosen": trace.chosen,
        "considered": [
            {
                "connectionId": one.connection_id,
                "connectionEpoch": one.epoch,
                "score": one.score,
                "whyNot": one.why_not and one.why_not.value,
            }
            for one in trace.considered
        ],
    }


def _scaling(pool: Pool) -> Mapping[str, object] | None:
    """The last decision that any of its processes told of."""
    told = [one.stats.scaling for one in pool.connections if one.stats.scaling is not None]
    if not told:
        return None
    last = told[-1]
    return {
        "decision": last.decision,
        "reason": last.reason,
        "connections": last.connections,
        "capacity": last.capacity,
    }
