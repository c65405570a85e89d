"""The seven metrics of the pool, by the names and labels that dashboards know.

A connection lives for minutes and has an ID of its own, so `connection_id` as a label would grow without bound. It is
given only for the connections of the busiest agents, and goes with the connection; what is known of every single one is
in the admin API.

Three of the seven count, and by the names that they have: without the `_total` that the format wants of a counter. So
they are told without a type, as which they add up, and are asked for a rate, like any other.
"""

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs
from prometheus_client.core import GaugeMetricFamily, UnknownMetricFamily
from prometheus_client.core import Metric as ShownMetric
from prometheus_client.registry import Collector

from agentmesh.pool.agent.scaling import Decision
from agentmesh.pool.router.connection import Connection
from agentmesh.pool.router.table import Pool, PoolTable
from agentmesh.pool.router.views import last_told
from agentmesh.protocols.pool import Scaling

MAX_LABELLED_AGENTS = 100

AGENT = "agent_id"
INSTANCE = "instance_id"
CONNECTION = "connection_id"
NODE = "server_node_id"
SCOPE = "scope"  # Scope
DECISION = "decision"  # Decision


class Kind(enum.Enum):
    """What a metric's values are."""

    NOW = "as it is now"
    COUNT = "all since the start"


@attrs.frozen
class Metric:
    """A metric: its name, what it says, and by what it is told apart."""

    name: str
    help: str
    labels: tuple[str, ...]
    kind: Kind = Kind.NOW


CONNECTIONS = Metric("tunnelmesh_agent_connections", "Connections in the pool.", (AGENT, INSTANCE, NODE))
CAPACITY = Metric("tunnelmesh_agent_connection_capacity", "Connections that an agent may have.", (AGENT, NODE))
ACTIVE_STREAMS = Metric("tunnelmesh_agent_active_streams", "Streams open.", (AGENT, INSTANCE, CONNECTION, NODE))
RTT = Metric("tunnelmesh_agent_connection_rtt", "Round trip in seconds.", (AGENT, INSTANCE, CONNECTION, NODE))
ERRORS = Metric(
    "tunnelmesh_agent_connection_errors", "Connections refused or lost.", (AGENT, NODE, "reason"), Kind.COUNT
)
SCALE_DECISIONS = Metric(
    "tunnelmesh_agent_connection_scale_decisions",
    "Decisions on the number of connections.",
    (AGENT, INSTANCE, DECISION),
    Kind.COUNT,
)
SELECTION = Metric("tunnelmesh_agent_selection", "Choices of a connection.", (AGENT, NODE, SCOPE), Kind.COUNT)

METRICS = (CONNECTIONS, CAPACITY, ACTIVE_STREAMS, RTT, ERRORS, SCALE_DECISIONS, SELECTION)


@attrs.frozen
class Sample:
    """A value of a metric, with the values of its labels."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


LOST = ("lost", "silent")  # of the reasons why connections end, those that nobody meant


def router_samples(table: PoolTable) -> list[Sample]:
    """What a router has to show. Connections without a label of their own are added up; of round trips, the longest.

    A connection that is refused is told without its agent: who is refused may call itself anything.
    """
    node, labelled = table.node_id, busiest(table)
    found = [Sample(ERRORS, ("", node, reason), count) for reason, count in table.refused.items()]
    for pool in table:
        found += _of_pool(pool, table, labelled)
    for agent, traces in table.traces.items():
        found += [Sample(SELECTION, (agent, node, scope), count) for scope, count in traces.chosen.items()]
    return found


def _of_pool(pool: Pool, table: PoolTable, labelled: frozenset[str]) -> Iterator[Sample]:
    agent, node = pool.agent_id, table.node_id
    streams: Counter[tuple[str, ...]] = Counter()
    trips: dict[tuple[str, ...], float] = {}
    for one in pool.connections:
        labels = (agent, one.claim.instance_id, connection_label(one, labelled), node)
        streams[labels] += one.active_streams
        if one.rtt is not None:
            trips[labels] = max(one.rtt, trips.get(labels, 0.0))
    for instance, count in Counter(one.claim.instance_id for one in pool.connections).items():
        yield Sample(CONNECTIONS, (agent, instance, node), count)
    yield Sample(CAPACITY, (agent, node), table.limits.max_connections_per_agent)
    yield from (Sample(ACTIVE_STREAMS, labels, count) for labels, count in streams.items())
    yield from (Sample(RTT, labels, trip) for labels, trip in trips.items())
    yield from (Sample(ERRORS, (agent, node, reason), pool.ended[reason]) for reason in LOST)
    for instance in pool.instances:
        told = last_told(one for one in pool.connections if one.claim.instance_id == instance)
        yield from agent_samples(agent, _decisions(told[1]), instance) if told else ()


def _decisions(scaling: Scaling) -> Mapping[Decision, int]:
    """As a process told them."""
    return {
        Decision.SCALE_UP: scaling.scale_ups,
        Decision.SCALE_DOWN: scaling.scale_downs,
        Decision.REJECTED: scaling.rejections,
    }


def agent_samples(agent_id: str, counts: Mapping[Decision, int], instance_id: str = "") -> list[Sample]:
    """What an agent's process has to show: its decisions, those that wanted something."""
    shown = (Decision.SCALE_UP, Decision.SCALE_DOWN, Decision.REJECTED)
    return [Sample(SCALE_DECISIONS, (agent_id, instance_id, decision), counts[decision]) for decision in shown]


class Samples(Collector):
    """Shows samples on a page of metrics.

    Args:
        metrics: all that there may be: those without a value are named, too.
        read: gives the values, whenever they are asked for.
    """

    def __init__(self, metrics: Iterable[Metric], read: Callable[[], Iterable[Sample]]) -> None:
        self._metrics = tuple(metrics)
        self._read = read

    def collect(self) -> Iterator[ShownMetric]:
        families = {metric: _family_of(metric) for metric in self._metrics}
        for sample in self._read():
            families[sample.metric].add_metric(sample.labels, sample.value)
        yield from families.values()


def _family_of(metric: Metric) -> GaugeMetricFamily | UnknownMetricFamily:
    kind = GaugeMetricFamily if metric.kind is Kind.NOW else UnknownMetricFamily
    return kind(metric.name, metric.help, labels=metric.labels)


def busiest(pools: Iterable[Pool], most: int = MAX_LABELLED_AGENTS) -> frozenset[str]:
    """The agents whose connections have labels of their own."""
    ranked = sorted(pools, key=lambda pool: (-pool.active_streams, pool.agent_id))
    return frozenset(pool.agent_id for pool in ranked[:most])


def connection_label(connection: Connection, labelled: frozenset[str]) -> str:
    """The value of `connection_id`: "" where connections are told together."""
    return connection.connection_id if connection.claim.agent_id in labelled else ""
