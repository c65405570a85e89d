"""Which connection of another router a stream gets, by what the registry lists of them: some seconds old, all of it."""

import enum
import random
from collections import Counter
from collections.abc import Callable, Sequence

import attrs

from agentmesh.pool.router.claims import ConnectionKey
from agentmesh.pool.router.limits import PoolLimits, is_full
from agentmesh.pool.router.score import Load, score
from agentmesh.pool.router.selection import NotChosen
from agentmesh.pool.router.trace import Considered, Scope, Trace, TraceRing, WhyNot
from agentmesh.protocols.pool import ConnEpoch, serves


class RemotePolicy(enum.StrEnum):
    """How a remote connection is chosen: what is known of them is some seconds old."""

    LOWEST = "lowest"  # the least costly, which everybody else takes as well
    P2C = "p2c"  # the less costly of two chosen at random


@attrs.frozen(kw_only=True)
class Remote:
    """A connection of another router, as the registry lists it.

    Attributes:
        health_score: from 0 to 100; 0: not to be chosen.
        stats_age: seconds since its router said so.
    """

    agent_id: str
    connection_id: str
    epoch: ConnEpoch
    server_node_id: str
    capabilities: frozenset[str] = frozenset()
    active_streams: int = 0
    health_score: int = 100
    stats_age: float = 0.0

    @property
    def key(self) -> ConnectionKey:
        return ConnectionKey(self.agent_id, self.connection_id, self.epoch)

    def load(self) -> Load:
        """Its health stands for everything that only its own router can measure."""
        return Load(
            active=self.active_streams,
            errors=10 * (100 - self.health_score),
            stats_age_ms=max(round(self.stats_age * 1000), 0),
        )


def pick_remote(
    traces: TraceRing,
    remotes: Sequence[Remote],
    *,
    protocol: str,
    limits: PoolLimits,
    now: float,
    trace_id: str = "",
    policy: RemotePolicy = RemotePolicy.LOWEST,
    sample: Callable[[Sequence[Remote], int], Sequence[Remote]] = random.sample,
) -> Remote | NotChosen:
    """Choose a connection of another router. Its own router has the last word when the stream comes there.

    Args:
        traces: of the agent; the choice is recorded there.
        remotes: those that have not run out; those tried already left out.
        sample: draws so many of them.
    """
    verdicts = {one: _why_not_remote(one, protocol, limits) for one in remotes}
    scores = {one: score(one.load(), None) for one, found in verdicts.items() if found is None}
    drawn = list(scores)
    if policy is RemotePolicy.P2C and len(drawn) > 2:
        drawn = list(sample(drawn, 2))
    chosen = min(drawn, key=lambda one: (scores[one], one.connection_id), default=None)
    considered = tuple(Considered(one.connection_id, one.epoch, scores.get(one), verdicts[one]) for one in remotes)
    name = chosen.connection_id if chosen else ""
    traces.add(
        Trace(trace_id=trace_id, at=now, protocol=protocol, scope=Scope.REMOTE, considered=considered, chosen=name)
    )
    if chosen is None:
        return NotChosen(Counter(found for found in verdicts.values() if found is not None))
    return chosen


def _why_not_remote(remote: Remote, protocol: str, limits: PoolLimits) -> WhyNot | None:
    if not serves(remote.capabilities, protocol):
        return WhyNot.UNSUPPORTED
    if remote.health_score <= 0:
        return WhyNot.FAILING
    if is_full(remote.active_streams, limits.max_streams_per_connection):
        return WhyNot.FULL
    return None
