"""What comes out of the machine of either side."""

import attrs

from agentmesh.protocols.pool.values import Ack, Drain, Hello, Stats


@attrs.frozen
class Joined:
    """Agent: the connection is in the pool."""

    ack: Ack


@attrs.frozen
class Refused:
    """Agent: it is not, and the ack says why. The machine is finished."""

    ack: Ack


@attrs.frozen
class MetadataAcknowledged:
    """Agent: what the router made of metadata sent later."""

    ack: Ack


@attrs.frozen
class HelloReceived:
    """Router: an agent wants to join. It waits for `send_ack`."""

    hello: Hello


@attrs.frozen
class MetadataReceived:
    """Router: the agent's metadata has changed. It waits for `send_ack`."""

    hello: Hello


@attrs.frozen
class StatsReceived:
    """Router: how the connection is."""

    stats: Stats


@attrs.frozen
class DrainReceived:
    """The peer will end the connection.

    Attributes:
        drain: what it said.
        returned: the opens that it will not serve, and has not begun to: they can be made elsewhere.
    """

    drain: Drain
    returned: frozenset[int] = frozenset()


@attrs.frozen
class Drained:
    """The connection drains, the last open that counts is known, and no stream is left. It can be closed."""


@attrs.frozen
class DrainExpired:
    """The time of these streams is over: reset them. Said once."""

    stream_ids: frozenset[int]


@attrs.frozen
class RttMeasured:
    """A heartbeat was answered."""

    rtt: float  # seconds
    smoothed: float  # seconds


@attrs.frozen
class PeerSilent:
    """Nothing has come for three intervals, or no hello or ack in time. The machine is finished."""


@attrs.frozen
class PeerLeft:
    """The peer ended the control stream. The machine is finished."""


Event = (
    Joined
    | Refused
    | MetadataAcknowledged
    | HelloReceived
    | MetadataReceived
    | StatsReceived
    | DrainReceived
    | Drained
    | DrainExpired
    | RttMeasured
    | PeerSilent
    | PeerLeft
)
