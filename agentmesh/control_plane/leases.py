"""Which routers are up: a router says so every few minutes, and less long before it stops."""

from collections.abc import Callable, Sequence
from functools import partial

from agentmesh.control_plane.authority import Authority
from agentmesh.control_plane.proof import Proof, check_proof, parse_peer
from agentmesh.control_plane.records import Lease
from agentmesh.control_plane.refusals import bad_request, forbidden, unauthorized
from agentmesh.control_plane.store import Store, until_settled
from agentmesh.control_plane.times import to_datetime
from agentmesh.credentials import ROLE_ROUTER
from agentmesh.errors import AddressError
from agentmesh.types import Address, PeerId
from agentmesh.wire.messages.mesh.v1 import RouterLeaseRequest, RouterLeaseResponse

MAX_ADDRESSES = 32
MAX_ADDRESS_CHARACTERS = 1024


def lease_expiry(now: float, lease_duration: float, ttl: float | None) -> float:
    """When a lease taken at `now` runs out. A router may ask for less than the control plane gives, never for more."""
    return now + (lease_duration if ttl is None else min(ttl, lease_duration))


def parse_addresses(texts: Sequence[str], peer: PeerId) -> tuple[Address, ...]:
    """A router's own addresses. Raises RefusedError (400) when one is none, or another peer's."""
    if len(texts) > MAX_ADDRESSES or any(len(text) > MAX_ADDRESS_CHARACTERS for text in texts):
        raise bad_request(f"at most {MAX_ADDRESSES} addresses of {MAX_ADDRESS_CHARACTERS} characters")
    try:
        addresses = tuple(Address.parse(text) for text in texts)
    except AddressError as exc:
        raise bad_request("an address is no multiaddr") from exc
    if any(address.peer != peer for address in addresses):
        raise bad_request(f"every address ends in /p2p/{peer}")
    return addresses


class Leases:
    """The routers' leases.

    Args:
        lease_duration: seconds that a lease lasts at most.
        wall_clock: gives the seconds since 1970.
    """

    def __init__(
        self, store: Store, authority: Authority, lease_duration: float, wall_clock: Callable[[], float]
    ) -> None:
        self._store, self._authority = store, authority
        self._lease_duration, self._wall_clock = lease_duration, wall_clock

    async def renew(self, message: RouterLeaseRequest) -> RouterLeaseResponse:
        """Take, lengthen, shorten (ttl) or give up (ttl 0) a lease.

        Raises:
            RefusedError: 400 malformed, 401 not enrolled or no proof, 403 not a router, or banned.
            StoreError: the database does not answer.
        """
        peer, now = parse_peer(message.peer_id), self._wall_clock()
        ttl = None if message.ttl is None else message.ttl.total_seconds()
        loads = (message.connected_peers, message.dht_size, message.connections, message.connection_limit)
        if (ttl is not None and ttl < 0) or min(loads) < 0:
            raise bad_request("ttl and loads are not negative")
        check_proof(peer, Proof("routers-lease", message.challenge_unix_ms, message.challenge_signature), now)
        node = await self._store.node(peer)
        credential = self._authority.verify(message.biscuit, peer)
        if node is None:
            raise unauthorized("the peer is not enrolled")
        if str(peer) in self._store.mirror.latest.banned:
            raise forbidden("the peer is banned")
        if credential.role != ROLE_ROUTER:
            raise forbidden("the peer is not a router")
        expires_at = lease_expiry(now, self._lease_duration, ttl)
        lease = Lease(peer, parse_addresses(message.addresses, peer), now, expires_at, *loads)
        await until_settled(partial(self._store.renew_lease, lease))
        return RouterLeaseResponse(success=True, expire_time=to_datetime(expires_at))
