"""What has to hold of a pool at every moment, computed anew from its parts: for tests, and for a router that runs."""

from collections import Counter
from collections.abc import Iterator

from agentmesh.pool.metrics import ACTIVE_STREAMS, CONNECTIONS, Metric, router_samples
from agentmesh.pool.registry import AmbiguousAgentError, Keeper
from agentmesh.pool.router.attached import Attached
from agentmesh.pool.router.connection import Connection, LeaseState, State
from agentmesh.pool.router.metadata import MetadataBook
from agentmesh.pool.router.selection import healthy, is_online
from agentmesh.pool.router.table import Pool, PoolTable

MAX_FOUND = 100  # complaints; with so many no more is needed


def violations(
    table: PoolTable, now: float, *, keeper: Keeper | None = None, book: MetadataBook | None = None
) -> list[str]:
    """What does not hold; nothing, unless there is a bug.

    Args:
        now: seconds on the table's clock.
        keeper: of the connections' leases, if there are other routers.
        book: what their processes tell of themselves.
    """
    found: list[str] = []
    for pool in table:
        found += _of_pool(pool, table, now)
        for connection in pool.connections:
            found += [f"{connection.key}: {text}" for text in _of_connection(connection, pool)]
    counted = sum(len(pool.by_id) + len(pool.places) for pool in table)
    if counted != len(table):
        found.append(f"{len(table)} connections are counted and {counted} are there")
    limit, held = table.limits.max_connections_per_node, sum(map(_places_held, table))
    if 0 < limit < held:
        found.append(f"{held} connections, above max_connections_per_node")
    found += _of_gauges(table)
    found += _of_keeper(table, keeper) if keeper is not None else ()
    found += _of_book(table, book) if book is not None else ()
    return found[:MAX_FOUND]


def _of_pool(pool: Pool, table: PoolTable, now: float) -> list[str]:
    limits = table.limits
    well = healthy(pool, limits, now)
    found: list[str] = []
    if is_online(pool, limits, now) != bool(well):
        found.append(f"{pool.agent_id}: online is not what its connections say")
    if len(pool.fences) > limits.max_fences_per_agent:
        found.append(f"{pool.agent_id}: {len(pool.fences)} epochs remembered")
    if _places_held(pool) > 2 * limits.max_connections_per_agent:
        found.append(f"{pool.agent_id}: more connections than there may be")
    if pool.is_empty:
        found.append(f"{pool.agent_id}: a pool of nothing")
    if not _is_found_by_its_name(pool, table):
        found.append(f"{pool.agent_id}: not found by its name")
    return found


def _places_held(pool: Pool) -> int:
    """Connections that it has or will have: who comes again takes the place that it had."""
    return len(pool.by_id.keys() | pool.places.keys())


def _is_found_by_its_name(pool: Pool, table: PoolTable) -> bool:
    try:
        return table.lookup(pool.agent_id) is pool
    except AmbiguousAgentError as exc:
        return pool.agent_id in exc.agent_ids


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
    reserved = {lease.stream_id for lease in connection.leases if lease.state is LeaseState.RESERVED}
    if reserved != set(attached.opening):
        found.append(f"streams {sorted(reserved)} have a place and {sorted(attached.opening)} are being opened")
    machine = attached.control.machine
    if not machine.is_finished and not (active | set(attached.opening)) >= machine.open_streams:
        found.append(f"the machine has streams {sorted(machine.open_streams)}")
    return found


def _of_gauges(table: PoolTable) -> Iterator[str]:
    """What is shown is what there is, however it is told apart."""
    shown: Counter[tuple[Metric, str]] = Counter()
    for sample in router_samples(table):
        shown[sample.metric, sample.labels[0]] += int(sample.value)
    for pool in table:
        there = {CONNECTIONS: len(pool.by_id), ACTIVE_STREAMS: sum(len(one.leases) for one in pool.by_id.values())}
        for metric, count in there.items():
            if shown[metric, pool.agent_id] != count:
                yield f"{pool.agent_id}: {metric.name} is {shown[metric, pool.agent_id]} and not {count}"


def _of_keeper(table: PoolTable, keeper: Keeper) -> Iterator[str]:
    """A connection has the epoch of its lease, and every lease is of a connection."""
    kept = {(one.new.agent_id, one.new.connection_id): one for one in keeper}
    for (agent_id, connection_id), one in kept.items():
        pool = table.get(agent_id)
        connection = pool.by_id.get(connection_id) if pool else None
        if connection is None and (pool is None or connection_id not in pool.places):
            yield f"{one.fence}: kept, and there is no such connection"
        elif connection is not None and connection.epoch != one.epoch:
            yield f"{connection.key}: kept under the epoch {one.epoch}"
        if one.new.server_node_id != table.node_id:
            yield f"{one.fence}: kept for {one.new.server_node_id}"
    for pool in table:
        for connection in pool.connections:
            if connection.state is State.OPEN and (pool.agent_id, connection.connection_id) not in kept:
                yield f"{connection.key}: open, and nobody keeps its lease"


def _of_book(table: PoolTable, book: MetadataBook) -> Iterator[str]:
    """Nothing is known of a process that is not there."""
    there = {(pool.agent_id, instance_id) for pool in table for instance_id in pool.instances}
    yield from (
        f"{agent_id}: metadata of {instance_id}, which has gone" for agent_id, instance_id in book.keys() - there
    )
