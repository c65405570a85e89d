"""Routers as the control plane lists them, made usable."""

from collections.abc import Iterable, Mapping

import attrs

from agentmesh.errors import AddressError
from agentmesh.types import Address, PeerId
from agentmesh.wire.messages.mesh.v1 import RouterInfo


@attrs.frozen
class RouterRecord:
    """A router that is up, as the control plane lists it."""

    peer: PeerId
    addresses: tuple[Address, ...]  # at least one; each ends in /p2p/<peer>
    labels: Mapping[str, str] = attrs.field(factory=dict[str, str])  # attested by the control plane
    connections: int = 0  # sessions that it holds
    connection_limit: int = 0  # the most that it takes; 0 when it did not say


def routers_of(listed: Iterable[RouterInfo]) -> tuple[RouterRecord, ...]:
    """The usable ones, in the order of the list.

    A missing peer ID is taken from the addresses, a missing /p2p part from the peer ID; addresses that name another
    peer are dropped, and so is a router that has none left.
    """
    return tuple(record for info in listed if (record := _record_of(info)) is not None)


def routers_at(texts: Iterable[str]) -> tuple[RouterRecord, ...]:
    """The routers at these addresses, of a list that says no more of them; how busy each is is unknown."""
    found = dict[PeerId, dict[Address, None]]()
    for address in parse_addresses(texts):
        if address.peer is not None:
            found.setdefault(address.peer, {})[address] = None
    return tuple(RouterRecord(peer, tuple(addresses)) for peer, addresses in found.items())


def _record_of(info: RouterInfo) -> RouterRecord | None:
    addresses = parse_addresses(info.addresses)
    peer = _peer_of(info.peer_id) if info.peer_id else next((a.peer for a in addresses if a.peer), None)
    own = tuple(dict.fromkeys(a.with_peer(peer) for a in addresses if a.peer in (None, peer))) if peer else ()
    if peer is None or not own:
        return None
    return RouterRecord(peer, own, dict(info.labels), info.connections, info.connection_limit)


def parse_addresses(texts: Iterable[str]) -> tuple[Address, ...]:
    """Those that are addresses."""
    return tuple(address for text in texts if (address := _address_of(text)) is not None)


def peers_in(texts: Iterable[str]) -> tuple[PeerId, ...]:
    """Those that are peer IDs."""
    return tuple(peer for text in texts if (peer := _peer_of(text)) is not None)


def _address_of(text: str) -> Address | None:
    try:
        return Address.parse(text)
    except AddressError:
        return None


def _peer_of(text: str) -> PeerId | None:
    try:
        return PeerId.parse(text)
    except AddressError:
        return None
