"""The seven metrics of the pool, by the names and labels that dashboards know.

A connection lives for minutes and has an ID of its own, so `connection_id` as a label would grow without bound. It is
given only for the connections of the busiest agents, and goes with the connection; what is known of every single one is
in the admin API.
"""

from collections.abc import Iterable

import attrs

from agentmesh.pool.connection import Connection
from agentmesh.pool.table import AgentPool

MAX_LABELLED_AGENTS = 100

AGENT = "agent_id"
INSTANCE = "instance_id"
CONNECTION = "connection_id"
NODE = "server_node_id"
SCOPE = "scope"  # Scope
DECISION = "decision"  # Decision


@attrs.frozen
class Metric:
    """A metric: its name, what it says, and by what it is told apart."""

    name: str
    help: str
    labels: tuple[str, ...]


CONNECTIONS = Metric("tunnelmesh_agent_connections", "Connections in the pool.", (AGENT, INSTANCE, NODE))
CAPACITY = Metric("tunnelmesh_agent_connection_capacity", "Connections that an agent may have.", (AGENT, NODE))
ACTIVE_STREAMS = Metric("tunnelmesh_agent_active_streams", "Streams open.", (AGENT, INSTANCE, CONNECTION, NODE))
RTT = Metric("tunnelmesh_agent_connection_rtt", "Round trip in seconds.", (AGENT, INSTANCE, CONNECTION, NODE))
ERRORS = Metric("tunnelmesh_agent_connection_errors", "Connections refused or lost.", (AGENT, NODE, "reason"))
SCALE_DECISIONS = Metric(
    "tunnelmesh_agent_connection_scale_decisions", "Decisions on the number of connections.", (AGENT, DECISION)
)
SELECTION = Metric("tunnelmesh_agent_selection", "Choices of a connection.", (AGENT, NODE, SCOPE))

METRICS = (CONNECTIONS, CAPACITY, ACTIVE_STREAMS, RTT, ERRORS, SCALE_DECISIONS, SELECTION)


def busiest(pools: Iterable[AgentPool], most: int = MAX_LABELLED_AGENTS) -> frozenset[str]:
    """The agents whose connections have labels of their own."""
    ranked = sorted(pools, key=lambda pool: (-pool.active_streams, pool.agent_id))
    return frozenset(pool.agent_id for pool in ranked[:most])


def connection_label(connection: Connection, labelled: frozenset[str]) -> str:
    """The value of `connection_id`: "" where connections are told together."""
    return connection.connection_id if connection.claim.agent_id in labelled else ""
