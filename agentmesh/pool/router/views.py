"""What a router shows of its agents' connections, as JSON: the names are those of the API. A list is never null.

Connections of this router are shown as they are, those of others as the registry lists them.
"""

from collections.abc import Iterable, Sequence

import attrs

from agentmesh.control_plane.times import instant_text
from agentmesh.pool.registry.values import ConnectionLease, Fence
from agentmesh.pool.router.connection import Connection, State
from agentmesh.pool.router.score import QUEUE_WAIT_US, Load, health_score, score
from agentmesh.pool.router.selection import best_rtt_of, healthy, is_online, load_of
from agentmesh.pool.router.table import Pool, PoolTable
from agentmesh.pool.router.trace import Trace
from agentmesh.protocols.pool import Scaling

View = dict[str, object]


@attrs.frozen
class Moment:
    """Now, by two clocks: seconds on the table's, and since 1970."""

    now: float
    wall: float

    def instant(self, at: float) -> str:
        """A moment of the table's clock, as text."""
        return instant_text(self.wall + at - self.now)


def agent_summary(table: PoolTable, pool: Pool, moment: Moment) -> View:
    """An agent in a line, as this router knows it: whether it is there, how much there is of it, what was decided."""
    connections = pool.connections
    return {
        "agentId": pool.agent_id,
        "online": is_online(pool, table.limits, moment.now),
        "instanceCount": len(pool.instances),
        "connectionCount": len(connections),
        "healthyConnectionCount": len(healthy(pool, table.limits, moment.now)),
        "capacity": table.limits.max_connections_per_agent,
        "activeStreams": pool.active_streams,
        "cloned": sorted(cloned_instances(connections)),
        "scaling": _latest(connections, moment),
    }


def totals(table: PoolTable, moment: Moment) -> View:
    """All agents of this router, added up."""
    pools = list(table)
    return {
        "agents": len(pools),
        "online": sum(is_online(pool, table.limits, moment.now) for pool in pools),
        "instances": sum(len(pool.instances) for pool in pools),
        "connections": sum(len(pool.by_id) for pool in pools),
        "activeStreams": sum(pool.active_streams for pool in pools),
    }


def agent_view(table: PoolTable, agent_id: str, moment: Moment, leases: Sequence[ConnectionLease] = ()) -> View:
    """An agent: whether it is there, its processes, its connections, and the last decision on their number.

    An agent without connections is offline, which is no error.

    Args:
        leases: what the registry lists of it.
    """
    pool = table.get(agent_id) or Pool(agent_id)
    connections = connection_views(table, agent_id, moment, leases)
    return {
        "agentId": agent_id,
        "online": any(one["healthy"] for one in connections),
        "instanceCount": len({one["instanceId"] for one in connections}),
        "connectionCount": len(connections),
        "healthyConnectionCount": sum(one["healthy"] is True for one in connections),
        "capacity": table.limits.max_connections_per_agent,
        "activeStreams": sum(_number(one["activeStreams"]) for one in connections),
        "instances": _instances(pool, connections, moment),
        "connections": connections,
        "scaling": _latest(pool.connections, moment),
    }


def connection_views(
    table: PoolTable, agent_id: str, moment: Moment, leases: Sequence[ConnectionLease] = ()
) -> list[View]:
    """The connections of an agent, by their IDs: those of this router, and of the others what the registry lists."""
    pool = table.get(agent_id) or Pool(agent_id)
    well = set(healthy(pool, table.limits, moment.now))
    loads = {one: load_of(one, moment.now) for one in pool.connections}
    best = best_rtt_of(loads.values())
    listed = {lease.fence: lease for lease in leases if lease.server_node_id == table.node_id}
    ours: list[View] = []
    for one, load in loads.items():
        lease = listed.get(Fence(agent_id, one.connection_id, one.epoch)) if listed else None
        ours.append({**_here(table, one, load, best, one in well, moment), "leaseExpiresAt": _expiry(lease)})
    theirs = [_elsewhere(lease) for lease in leases if lease.server_node_id != table.node_id]
    return sorted([*ours, *theirs], key=lambda one: (str(one["connectionId"]), str(one["serverNodeId"])))


def _here(
    table: PoolTable, connection: Connection, load: Load, best: int | None, is_healthy: bool, moment: Moment
) -> View:
    claim = connection.claim
    return {
        **_identity(claim.agent_id, claim.instance_id, connection.connection_id, connection.epoch, table.node_id),
        "local": True,
        "state": connection.state.value,
        "healthy": is_healthy,
        "activeStreams": connection.active_streams,
        "healthScore": health_score(load, best),
        "score": score(load, best),
        "rttSeconds": connection.rtt,
        "queuedBytes": load.queued_bytes,
        "queuePressure": _pressure(load),
        "recentErrorRate": load.errors / 1000,
        "connectedAt": moment.instant(connection.registered_at),
        "lastHeartbeatAt": moment.instant(connection.heard_at),
        "sinceHeartbeatSeconds": round(max(moment.now - connection.heard_at, 0.0), 3),
        "ageSeconds": round(max(moment.now - connection.registered_at, 0.0), 3),
        "capabilities": sorted(claim.capabilities),
    }


def _elsewhere(lease: ConnectionLease) -> View:
    """What only its own router knows is null."""
    return {
        **_identity(
            lease.agent_id, lease.instance_id, lease.connection_id, lease.connection_epoch, lease.server_node_id
        ),
        "local": False,
        "state": State.OPEN.value,
        "healthy": lease.health_score > 0,
        "activeStreams": lease.active_streams,
        "healthScore": lease.health_score,
        "score": None,
        "rttSeconds": None,
        "queuedBytes": None,
        "queuePressure": None,
        "recentErrorRate": None,
        "connectedAt": None,
        "lastHeartbeatAt": None,
        "sinceHeartbeatSeconds": None,
        "ageSeconds": None,
        "capabilities": sorted(lease.capabilities),
        "leaseExpiresAt": _expiry(lease),
    }


def _identity(agent_id: str, instance_id: str, connection_id: str, epoch: int, node_id: str) -> View:
    """An epoch is a number, and text beside it for whoever reads numbers as doubles."""
    return {
        "agentId": agent_id,
        "instanceId": instance_id,
        "connectionId": connection_id,
        "connectionEpoch": epoch,
        "connectionEpochDecimal": str(epoch),
        "serverNodeId": node_id,
    }


def _expiry(lease: ConnectionLease | None) -> str | None:
    return None if lease is None else instant_text(lease.expires_at)


def _pressure(load: Load) -> float:
    """How full the queue is, or how long it takes, from 0 to 1."""
    filled = load.queued_bytes / load.queue_limit_bytes if load.queue_limit_bytes else 0.0
    return round(min(max(filled, load.queue_wait_us / QUEUE_WAIT_US), 1.0), 3)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


# ── processes ──


def cloned_instances(connections: Iterable[Connection]) -> set[str]:
    """Those whose ID several processes go by: a state folder was copied, most likely."""
    boots: dict[str, set[str]] = {}
    for one in connections:
        if one.claim.boot:
            boots.setdefault(one.claim.instance_id, set()).add(one.claim.boot)
    return {instance_id for instance_id, found in boots.items() if len(found) > 1}


def _instances(pool: Pool, connections: Sequence[View], moment: Moment) -> list[View]:
    cloned = cloned_instances(pool.connections)
    found: list[View] = []
    for instance_id in sorted({str(one["instanceId"]) for one in connections}):
        its = [one for one in connections if one["instanceId"] == instance_id]
        here = [one for one in pool.connections if one.claim.instance_id == instance_id]
        found.append(
            {
                "instanceId": instance_id,
                "connectionCount": len(its),
                "activeStreams": sum(_number(one["activeStreams"]) for one in its),
                "healthy": any(one["healthy"] for one in its),
                "local": bool(here),
                "cloned": instance_id in cloned,
                "scaling": _latest(here, moment),
            }
        )
    return found


# ── decisions and choices ──


def scaling_views(pool: Pool, moment: Moment) -> list[View]:
    """What each process told of its last decision on the number of its connections."""
    found: list[View] = []
    for instance_id in sorted(pool.instances):
        last = _latest([one for one in pool.connections if one.claim.instance_id == instance_id], moment)
        if last is not None:
            found.append(last)
    return found


def last_told(connections: Iterable[Connection]) -> tuple[Connection, Scaling] | None:
    """The connection that was heard of last, of those whose process told of a decision, and what it told."""
    told = [(one, one.stats.scaling) for one in connections if one.stats.scaling is not None]
    return max(told, key=lambda pair: (pair[0].heard_at, pair[0].connection_id), default=None)


def _latest(connections: Iterable[Connection], moment: Moment) -> View | None:
    last = last_told(connections)
    if last is None:
        return None
    connection, scaling = last
    return {
        "instanceId": connection.claim.instance_id,
        "decision": scaling.decision,
        "reason": scaling.reason,
        "connections": scaling.connections,
        "capacity": scaling.capacity,
        "scaleUps": scaling.scale_ups,
        "scaleDowns": scaling.scale_downs,
        "rejections": scaling.rejections,
        "toldAt": moment.instant(connection.heard_at),
    }


def trace_view(trace: Trace, moment: Moment) -> View:
    """Why a connection was chosen, or none."""
    return {
        "traceId": trace.trace_id,
        "at": moment.instant(trace.at),
        "protocol": trace.protocol,
        "scope": trace.scope.value,
        "chosen": trace.chosen,
        "considered": [
            {
                "connectionId": one.connection_id,
                "connectionEpoch": one.epoch,
                "connectionEpochDecimal": str(one.epoch),
                "score": one.score,
                "whyNot": one.why_not and one.why_not.value,
            }
            for one in trace.considered
        ],
    }
