"""A host in numbers."""

import attrs

from agentmesh.runtime.accept import AcceptStatistics
from agentmesh.runtime.connections import ConnectionStatistics


@attrs.frozen
class HostStatistics:
    """A snapshot of a host. `handshakes_failed` counts inbound ones by kind (all of HANDSHAKE_FAILURES, from 0)."""

    connections: ConnectionStatistics
    streams: AcceptStatistics
    admitted: int
    dialing: int
    handshakes_failed: dict[str, int]

    @property
    def handshake_failures(self) -> int:
        """All of them."""
        return sum(self.handshakes_failed.values())
