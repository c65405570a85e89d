"""Every setting of a router, with its unit and default."""

from pathlib import Path

import attrs

from agentmesh.membership import Enrollment
from agentmesh.protocols.relay import BookLimits, CircuitLimits, RelayConfig
from agentmesh.runtime.config import HostConfig
from agentmesh.types import Address

DEFAULT_LISTEN = (Address.parse("/ip4/0.0.0.0/tcp/5001"),)


@attrs.frozen(kw_only=True)
class RouterConfig:
    """Settings of one router."""

    enrollment: Enrollment
    """How it gets into the mesh; its token is for the router role."""
    state_dir: Path = Path("router")
    """Where its key and credential are kept."""
    listen: tuple[Address, ...] = DEFAULT_LISTEN
    """Where it listens."""
    external_addresses: tuple[Address, ...] = ()
    """What it tells the mesh instead of where it listens: its addresses as members see them."""
    lease_renew_interval: float = 300.0
    """Seconds between two renewals of its lease."""
    host: HostConfig = HostConfig()
    """Sessions and connections."""
    relay: RelayConfig = attrs.field()
    """What it relays; sized to the host's connections unless set."""

    @relay.default
    def _relay(self) -> RelayConfig:
        connections = self.host.connections
        return RelayConfig(
            book=BookLimits(
                max_reservations=connections.high_watermark,
                max_reservations_per_source=connections.max_per_source,
            ),
            circuit=CircuitLimits(max_duration=3600.0),
        )
