"""Which connection a stream gets: those that pass five tests, and of them the one where it costs least.

Choosing and taking the place are one step. A connection of this router goes before all others.
"""

from collections import Counter
from collections.abc import Collection, Sequence

import attrs

from agentmesh.pool.router.connection import Connection, Lease, State
from agentmesh.pool.router.health import Standing
from agentmesh.pool.router.limits import PoolLimits, is_full
from agentmesh.pool.router.score import Load, score
from agentmesh.pool.router.table import Pool
from agentmesh.pool.router.trace import Considered, Scope, Trace, WhyNot
from agentmesh.protocols.pool import Code, OpenResult, Stage

RETRY_AFTER_FULL_MS = 1000


@attrs.frozen
class NotChosen:
    """No connection can take the stream.

    Attributes:
        reasons: how many connections fail which test.
    """

    reasons: Counter[WhyNot]

    @property
    def dominant(self) -> WhyNot | None:
        """What most of them fail, of equals the first test; None when there is no connection at all."""
        return min(WhyNot, key=lambda reason: -self.reasons[reason]) if self.reasons else None

    @property
    def result(self) -> OpenResult:
        """As an open is answered."""
        match self.dominant:
            case WhyNot.FULL:
                return OpenResult(Stage.SELECTION, Code.QUEUE_FULL, True, RETRY_AFTER_FULL_MS)
            case WhyNot.UNSUPPORTED:
                return OpenResult(Stage.SELECTION, Code.UNSUPPORTED_CAPABILITY)
            case _:
                return OpenResult(Stage.SELECTION, Code.AGENT_OFFLINE, retryable=True)


def pick(
    pool: Pool,
    *,
    protocol: str,
    limits: PoolLimits,
    now: float,
    trace_id: str = "",
    tried: Collection[Connection] = (),
) -> Lease | NotChosen:
    """Choose a connection of this router for one stream, and take the place.

    Args:
        tried: those that this open has been to already.
        trace_id: under which it is recorded.
    """
    verdicts = judge(pool, protocol, limits, now, tried)
    loads = {one: load_of(one, now) for one, found in verdicts.items() if found is None}
    best_rtt = best_rtt_of(loads.values())
    scores = {one: score(load, best_rtt) for one, load in loads.items()}
    chosen = min(scores, key=lambda one: (scores[one], one.connection_id), default=None)
    considered = tuple(
        Considered(one.connection_id, one.epoch, scores.get(one), verdict) for one, verdict in verdicts.items()
    )
    name = chosen.connection_id if chosen else ""
    pool.traces.add(
        Trace(trace_id=trace_id, at=now, protocol=protocol, scope=Scope.LOCAL, considered=considered, chosen=name)
    )
    if chosen is None:
        return NotChosen(Counter(found for found in verdicts.values() if found is not None))
    return chosen.reserve(now, trace_id)


def cheapest(pool: Pool, protocol: str, limits: PoolLimits, now: float) -> int | None:
    """What a stream costs on the connection that would be chosen now; None when there is none."""
    verdicts = judge(pool, protocol, limits, now)
    loads = [load_of(one, now) for one, found in verdicts.items() if found is None]
    best_rtt = best_rtt_of(loads)
    return min((score(load, best_rtt) for load in loads), default=None)


def judge(
    pool: Pool, protocol: str, limits: PoolLimits, now: float, tried: Collection[Connection] = ()
) -> dict[Connection, WhyNot | None]:
    """The connections, each with the test that it fails."""
    spared = _spared(pool.connections, limits, now)
    verdicts = {one: why_not(one, protocol, limits, now, spared) for one in pool.connections if one not in tried}
    if is_full(pool.active_streams, limits.max_streams_per_agent):
        return {one: found or WhyNot.FULL for one, found in verdicts.items()}
    return verdicts


def why_not(
    connection: Connection, protocol: str, limits: PoolLimits, now: float, spared: Collection[Connection] = ()
) -> WhyNot | None:
    """The first of the five tests that a connection fails; None when it is eligible."""
    if connection.state is not State.OPEN:
        return WhyNot.NOT_OPEN
    if not connection.serves(protocol):
        return WhyNot.UNSUPPORTED
    if now - connection.heard_at > limits.fresh_timeout:
        return WhyNot.STALE
    if connection not in spared and _is_left_out(connection, now):
        return WhyNot.FAILING
    if is_full(connection.active_streams, limits.max_streams_per_connection):
        return WhyNot.FULL
    return None


def healthy(pool: Pool, limits: PoolLimits, now: float) -> tuple[Connection, ...]:
    """The connections that are open, fresh and not failing, however full they are."""
    spared = _spared(pool.connections, limits, now)
    return tuple(
        one for one in pool.connections if _is_alive(one, limits, now) and (one in spared or not _is_out(one, now))
    )


def is_online(pool: Pool | None, limits: PoolLimits, now: float) -> bool:
    """Whether the agent is there: any of its connections is healthy. Everything that shows or uses this asks here."""
    return pool is not None and bool(healthy(pool, limits, now))


def load_of(connection: Connection, now: float) -> Load:
    """What is known of a connection. One on trial is not held to what it did before."""
    load = connection.load(now)
    on_trial = connection.health.standing(now) is Standing.ON_TRIAL
    return attrs.evolve(load, errors=0) if on_trial else load


def best_rtt_of(loads: Collection[Load]) -> int | None:
    return min((load.rtt_us for load in loads if load.rtt_us is not None), default=None)


def _is_alive(connection: Connection, limits: PoolLimits, now: float) -> bool:
    return connection.state is State.OPEN and now - connection.heard_at <= limits.fresh_timeout


def _is_out(connection: Connection, now: float) -> bool:
    return connection.health.standing(now) is Standing.OUT


def _is_left_out(connection: Connection, now: float) -> bool:
    """Out, or on a trial that is under way."""
    return _is_out(connection, now) or connection.health.on_trial


def _spared(connections: Sequence[Connection], limits: PoolLimits, now: float) -> frozenset[Connection]:
    """Those that would be left out, and are not: never more than half of those alive are, the worst ones."""
    alive = [one for one in connections if _is_alive(one, limits, now)]
    out = [one for one in alive if _is_left_out(one, now)]
    out.sort(key=lambda one: (one.health.rate.thousandths(now), one.connection_id))
    return frozenset(out[: max(len(out) - len(alive) // 2, 0)])
