"""Which routers are up and who is banned, for everybody: encoded once per change, and not for each who asks."""

import math
from collections.abc import Callable

from agentmesh.control_plane.config import Config
from agentmesh.control_plane.mirror import Mirror, Snapshot
from agentmesh.control_plane.records import Lease
from agentmesh.wire.messages.mesh.v1 import (
    BootstrapEnrollResponse,
    ControlPlaneInfoResponse,
    EnrollResponse,
    RouterInfo,
)

Listing = type[BootstrapEnrollResponse] | type[EnrollResponse]  # messages that list router_addresses


class InfoPage:
    """The answer to GET /info and parts of others, kept until something in them changes or a lease runs out.

    Args:
        wall_clock: gives the seconds since 1970.
        config: says how people register, and how many routers hold a record of the directory.
    """

    def __init__(self, mirror: Mirror, wall_clock: Callable[[], float], config: Config) -> None:
        self._mirror, self._wall_clock, self._config = mirror, wall_clock, config
        self._of: Snapshot | None = None
        self._from, self._until = math.inf, -math.inf  # the instants between which it is right
        self._encoded = b""
        self._addresses: list[str] = []
        self._listings = dict[Listing, bytes]()

    async def encoded(self) -> bytes:
        """A ControlPlaneInfoResponse as of now. Raises StoreError."""
        self._update(await self._mirror.look())
        return self._encoded

    def router_addresses(self) -> list[str]:
        """Those of the routers that were up at the last look at the database. Not to be changed."""
        self._update(self._mirror.latest)
        return self._addresses

    def encoded_addresses(self, kind: Listing) -> bytes:
        """The same, as the field router_addresses of a message of this kind."""
        self._update(self._mirror.latest)
        if kind not in self._listings:
            self._listings[kind] = bytes(kind(router_addresses=self._addresses))
        return self._listings[kind]

    def _update(self, snapshot: Snapshot) -> None:
        now = self._wall_clock()
        if snapshot is self._of and self._from <= now < self._until:
            return
        leases = snapshot.live_leases(now)
        routers = [_info_of(lease) for lease in leases]
        self._addresses = [address for router in routers for address in router.addresses]
        self._listings.clear()
        issuer, client_id, audience = self._config.login
        self._encoded = bytes(
            ControlPlaneInfoResponse(
                oidc_issuer=issuer,
                client_id=client_id,
                audience=audience,
                directory_replication=self._config.dht_replication,
                routers=routers,
                router_addresses=self._addresses,
                banned_peer_ids=sorted(snapshot.banned),
            )
        )
        self._of, self._from = snapshot, now
        self._until = min((lease.expires_at for lease in leases), default=math.inf)


def _info_of(lease: Lease) -> RouterInfo:
    return RouterInfo(
        peer_id=str(lease.peer),
        addresses=[str(address) for address in lease.addresses],
        labels=dict(lease.labels),
        connections=lease.connections,
        connection_limit=lease.connection_limit,
    )
