"""GET /info: the routers that are up and the peers that are banned, encoded once per change."""

import math
from collections.abc import Callable

from agentmesh.control_plane.mirror import Mirror, Snapshot
from agentmesh.control_plane.records import Lease
from agentmesh.wire.messages.mesh.v1 import ControlPlaneInfoResponse, RouterInfo


class InfoPage:
    """The answer to GET /info, kept until something in it changes or a lease in it runs out.

    Args:
        wall_clock: gives the seconds since 1970.
    """

    def __init__(self, mirror: Mirror, wall_clock: Callable[[], float]) -> None:
        self._mirror, self._wall_clock = mirror, wall_clock
        self._of = Snapshot()
        self._from, self._until = math.inf, -math.inf  # the instants between which it is right
        self._encoded = b""

    async def encoded(self) -> bytes:
        """A ControlPlaneInfoResponse as of now. Raises StoreError."""
        snapshot, now = await self._mirror.look(), self._wall_clock()
        if snapshot is not self._of or not self._from <= now < self._until:
            leases = snapshot.live_leases(now)
            self._encoded = bytes(_answer(leases, snapshot.banned))
            self._of, self._from = snapshot, now
            self._until = min((lease.expires_at for lease in leases), default=math.inf)
        return self._encoded


def _answer(leases: tuple[Lease, ...], banned: frozenset[str]) -> ControlPlaneInfoResponse:
    routers = [_info_of(lease) for lease in leases]
    return ControlPlaneInfoResponse(
        routers=routers,
        router_addresses=[address for router in routers for address in router.addresses],
        banned_peer_ids=sorted(banned),
    )


def _info_of(lease: Lease) -> RouterInfo:
    return RouterInfo(
        peer_id=str(lease.peer),
        addresses=[str(address) for address in lease.addresses],
        labels=dict(lease.labels),
        connections=lease.connections,
        connection_limit=lease.connection_limit,
    )
