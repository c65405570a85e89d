"""Every setting of a router, with its unit and default."""

from pathlib import Path

import attrs
from attrs import validators

from agentmesh.membership import Enrollment
from agentmesh.pool.registry import KeeperConfig
from agentmesh.pool.router.ingress import IngressConfig
from agentmesh.pool.router.limits import PoolLimits
from agentmesh.protocols.directory import DirectoryConfig
from agentmesh.protocols.relay import BookLimits, CircuitLimits, RelayConfig
from agentmesh.runtime.config import ConnectionLimits, HostConfig
from agentmesh.types import Address

DEFAULT_LISTEN = (Address.parse("/ip4/0.0.0.0/tcp/5001"),)


@attrs.frozen(kw_only=True)
class AgentsConfig:
    """Of the connections of agents. ValueError when one of them is out of range."""

    registry: str | None = attrs.field(default=None, repr=False)
    """The DSN of the registry that tells the routers of each other's connections; a password may be in it. Without one,
    a router knows its own.
    """
    limits: PoolLimits = PoolLimits()
    """How many connections and streams there may be."""
    ingress: IngressConfig = IngressConfig()
    """How streams are spread over routers."""
    lease_ttl: float = attrs.field(default=KeeperConfig().ttl, validator=validators.gt(0))
    """Seconds that the registry lists a connection whose router is gone; it is renewed three times meanwhile."""
    drain_timeout: float = attrs.field(default=30.0, validator=validators.ge(0))
    """Seconds that streams have when the router stops."""

    @property
    def keeper(self) -> KeeperConfig:
        """How leases are kept."""
        return KeeperConfig(ttl=self.lease_ttl, renew_interval=self.lease_ttl / 3)


@attrs.frozen(kw_only=True)
class RouterConfig:
    """Settings of one router. ValueError when one of them is out of range."""

    enrollment: Enrollment
    """How it gets into the mesh; its token is for the router role."""
    state_dir: Path = Path("router")
    """Where its key and credential are kept."""
    listen: tuple[Address, ...] = DEFAULT_LISTEN
    """Where it listens."""
    external_addresses: tuple[Address, ...] = ()
    """What it tells the mesh instead of where it listens: its addresses as members see them."""
    tls_certificate: Path | None = None
    """A PEM file with the certificate chain and key that `/tls/ws` and `/tls/http` are listened on with."""
    lease_renew_interval: float = attrs.field(default=300.0, validator=validators.gt(0))
    """Seconds between two renewals of its lease."""
    shutdown_lease_ttl: float = attrs.field(default=30.0, validator=validators.ge(0))
    """Seconds that the router is away when it stops: so long it stays listed, and members leave it alone. 0 sends no
    last lease.
    """
    host: HostConfig = HostConfig()
    """Sessions and connections."""
    relay: RelayConfig = attrs.field(
        default=attrs.Factory(lambda self: relay_for(self.host.connections), takes_self=True)
    )
    """What it relays; sized to the host's connections unless set."""
    directory: DirectoryConfig = DirectoryConfig()
    """How many records it keeps, and how often a member may ask."""
    agents: AgentsConfig = AgentsConfig()
    """The connections of agents."""


def relay_for(connections: ConnectionLimits) -> RelayConfig:
    """As many reservations as there may be connections, circuits of an hour and of any size."""
    book = BookLimits(
        max_reservations=connections.high_watermark, max_reservations_per_source=connections.max_per_source
    )
    return RelayConfig(book=book, circuit=CircuitLimits(max_duration=3600.0))
