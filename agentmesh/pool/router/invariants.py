"""What has to hold of a pool at every moment, computed anew from its parts: for tests, and for a router that runs."""

from agentmesh.pool.router.attached import Attached
from agentmesh.pool.router.connection import Connection, LeaseState, State
from agentmesh.pool.router.selection import healthy, is_online
from agentmesh.pool.router.table import Pool, PoolTable

MAX_FOUND = 100  # complaints; with so many no more is needed


def violations(table: PoolTable, now: float) -> list[str]:
    """What does not hold; nothing, unless there is a bug.

    Args:
        now: seconds on the table's clock.
    """
    found: list[str] = []
    for pool in table:
        found += _of_pool(pool, table, now)
        for connection in pool.connections:
            found += [f"{connection.key}: {text}" for text in _of_connection(connection, pool)]
    counted = sum(len(pool.by_id) + len(pool.places) for pool in table)
    if counted != len(table):
        found.append(f"{len(table)} connections are counted and {counted} are there")
    limit = table.limits.max_connections_per_node
    if 0 < limit < counted:
        found.append(f"{counted} connections, above max_connections_per_node")
    return found[:MAX_FOUND]


def _of_pool(pool: Pool, table: PoolTable, now: float) -> list[str]:
    limits = table.limits
    well = healthy(pool, limits, now)
    found: list[str] = []
    if is_online(pool, limits, now) != bool(well):
        found.append(f"{pool.agent_id}: online is not what its connections say")
    if len(pool.fences) > limits.max_fences_per_agent:
        found.append(f"{pool.agent_id}: {len(pool.fences)} epochs remembered")
    if len(pool.by_id) + len(pool.places) > 2 * limits.max_connections_per_agent:
        found.append(f"{pool.agent_id}: more connections than there may be")
    if pool.is_empty:
        found.append(f"{pool.agent_id}: a pool of nothing")
    return found


def _of_connection(connection: Connection, pool: Pool) -> list[str]:
    found: list[str] = []
    if pool.by_id.get(connection.connection_id) is not connection or connection.claim.agent_id != pool.agent_id:
        found.append("not in its place")
    if connection.state is State.CLOSED:
        found.append("closed, and in the pool")
    fence = pool.fences.get(connection.connection_id)
    if fence is not None and fence[0] >= connection.epoch:
        found.append(f"its epoch was used before: {fence[0]}")
    if any(lease.connection is not connection or lease.state is LeaseState.ENDED for lease in connection.leases):
        found.append("streams that are over, or another's")
    if isinstance(connection.handle, Attached):
        found += _of_attached(connection, connection.handle)
    return found


def _of_attached(connection: Connection, attached: Attached) -> list[str]:
    """The pool, the streams and the machine of the control stream agree on what is open."""
    active = {lease.stream_id for lease in connection.leases if lease.state is LeaseState.ACTIVE}
    found: list[str] = []
    if active != set(attached.streams):
        found.append(f"streams {sorted(active)} are counted and {sorted(attached.streams)} are there")
    if set(attached.opening) & active:
        found.append("streams that are open and being opened")
    machine = attached.control.machine
    if not machine.is_finished and not (active | set(attached.opening)) >= machine.open_streams:
        found.append(f"the machine has streams {sorted(machine.open_streams)}")
    return found
