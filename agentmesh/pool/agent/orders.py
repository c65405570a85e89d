"""What the controller of an agent's connections wants done."""

import enum

import attrs

from agentmesh.protocols.pool import DrainReason


@attrs.frozen
class Dial:
    """Make a connection, under this ID, which no other ever had; say `joined` or `dial_failed`."""

    connection_id: str


@attrs.frozen
class Drain:
    """Let a connection go: take no more streams, tell the router, and say `drained` when none is left.

    Attributes:
        timeout: seconds that its streams have.
    """

    connection_id: str
    reason: DrainReason
    timeout: float


class CloseReason(enum.StrEnum):
    DRAINED = "drained"
    DRAIN_TIMEOUT = "drain_timeout"  # reset the streams that are left
    CEILING = "ceiling"  # a dial that is not wanted any more
    STOPPED = "stopped"


@attrs.frozen
class Close:
    """End a connection, or its dial."""

    connection_id: str
    reason: CloseReason


Order = Dial | Drain | Close
