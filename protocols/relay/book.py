"""Who holds a reservation and who talks to whom: the relay's budget. Synchronous, and without a clock of its own.

Nothing here awaits, so a decision and its entry in the book are one step: two requests never both get the last place.
`now` is wall-clock seconds, since a reservation ends with the credential that it rests on.
"""

import heapq
import ipaddress
from collections import Counter
from collections.abc import Collection

import attrs

from agentmesh.protocols.relay.events import Status
from agentmesh.types import Address, PeerId

RESERVATION_TTL = 3600.0  # seconds
IPV6_SOURCE_PREFIX = 56


@attrs.frozen
class BookLimits:
    """The bounds of the budget. There is none that can be switched off."""

    max_reservations: int = 4000
    max_reservations_per_source: int = 1000  # behind one IPv4 address or one IPv6 /56
    max_circuits_per_peer: int = 1024  # at either end
    reservation_ttl: float = RESERVATION_TTL  # seconds; less when the peer's admission ends sooner


@attrs.frozen
class Reservation:
    """One peer's place."""

    peer: PeerId
    source: str | None
    expires_at: float  # wall-clock seconds


@attrs.frozen
class CircuitEntry:
    """One circuit, from the moment it is granted until it has ended."""

    number: int
    source: PeerId
    destination: PeerId


def source_of(address: Address | None) -> str | None:
    """Whose places a peer's reservation counts among: its IPv4 address or its IPv6 prefix.

    A subscriber is usually given a whole IPv6 prefix, so a bound on single IPv6 addresses would bound nobody. None,
    which counts nowhere, when the address says nothing about who is behind it, as that of this machine does.
    """
    text = address and (address.value("ip4") or address.value("ip6"))
    if not text:
        return None
    ip = ipaddress.ip_address(text)
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip
    if ip.is_loopback:
        return None
    return str(ip) if ip.version == 4 else str(ipaddress.ip_network((ip, IPV6_SOURCE_PREFIX), strict=False))


class RelayBook:
    """The reservations and circuits of one relay."""

    def __init__(self, limits: BookLimits | None = None) -> None:
        self.limits = limits or BookLimits()
        self._reservations: dict[PeerId, Reservation] = {}
        self._expiries: list[tuple[float, PeerId]] = []
        self._by_source: Counter[str] = Counter()
        self._circuits: dict[int, CircuitEntry] = {}
        self._by_peer: dict[PeerId, dict[int, CircuitEntry]] = {}
        self._next_number = 0

    # ── reservations ──

    def reserve(self, peer: PeerId, source: str | None, admitted_until: float, now: float) -> Reservation | Status:
        """Give a peer a place, or renew the one it has.

        Args:
            peer: who is to be reachable.
            source: where it comes from (`source_of`).
            admitted_until: wall-clock seconds at which its admission ends; the place ends no later.
            now: wall-clock seconds.
        Returns:
            The reservation, or why there is none: the peer then keeps the place it had, if it had one.
        """
        self.expire(now)
        expires_at = min(now + self.limits.reservation_ttl, admitted_until)
        if expires_at <= now:
            return Status.PERMISSION_DENIED
        held = self._reservations.get(peer)
        if held is None and len(self._reservations) >= self.limits.max_reservations:
            return Status.RESERVATION_REFUSED
        newcomer = held is None or held.source != source
        if newcomer and self.reservation_count_of(source) >= self.limits.max_reservations_per_source:
            return Status.RESOURCE_LIMIT_EXCEEDED
        self.release(peer)
        return self._enter(Reservation(peer, source, expires_at))

    def release(self, peer: PeerId) -> None:
        """The peer is gone, or no longer admitted: its place is free. Its circuits are cut by the driver."""
        held = self._reservations.pop(peer, None)
        if held is None:
            return
        if held.source is not None:
            self._by_source[held.source] -= 1
            if not self._by_source[held.source]:
                del self._by_source[held.source]
        self._sweep()

    def expire(self, now: float) -> None:
        """Free the places whose time is over."""
        while self._expiries and self._expiries[0][0] <= now:
            _, peer = heapq.heappop(self._expiries)
            held = self._reservations.get(peer)
            if held is not None and held.expires_at <= now:
                self.release(peer)

    def holds(self, peer: PeerId, now: float) -> bool:
        held = self._reservations.get(peer)
        return held is not None and held.expires_at > now

    # ── circuits ──

    def open_circuit(self, source: PeerId, destination: PeerId, now: float) -> CircuitEntry | Status:
        """Enter a circuit, or say why there is none. `close_circuit` must follow, however it ends."""
        if source == destination:
            return Status.PERMISSION_DENIED
        if not self.holds(destination, now):
            return Status.NO_RESERVATION
        if any(len(self.circuits_of(peer)) >= self.limits.max_circuits_per_peer for peer in (source, destination)):
            return Status.RESOURCE_LIMIT_EXCEEDED
        self._next_number += 1
        entry = CircuitEntry(self._next_number, source, destination)
        self._circuits[entry.number] = entry
        for peer in (source, destination):
            self._by_peer.setdefault(peer, {})[entry.number] = entry
        return entry

    def close_circuit(self, entry: CircuitEntry) -> None:
        """The circuit has ended; saying so twice does nothing."""
        if self._circuits.pop(entry.number, None) is None:
            return
        for peer in (entry.source, entry.destination):
            del self._by_peer[peer][entry.number]
            if not self._by_peer[peer]:
                del self._by_peer[peer]

    # ── gauges ──

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        return tuple(self._reservations.values())

    @property
    def circuits(self) -> tuple[CircuitEntry, ...]:
        return tuple(self._circuits.values())

    def circuits_of(self, peer: PeerId) -> Collection[CircuitEntry]:
        """Those that the peer is an end of."""
        return self._by_peer.get(peer, {}).values()

    def reservation_count_of(self, source: str | None) -> int:
        """How many reservations count against a source; none does against None."""
        return 0 if source is None else self._by_source.get(source, 0)

    def _enter(self, reservation: Reservation) -> Reservation:
        self._reservations[reservation.peer] = reservation
        if reservation.source is not None:
            self._by_source[reservation.source] += 1
        heapq.heappush(self._expiries, (reservation.expires_at, reservation.peer))
        self._sweep()
        return reservation

    def _sweep(self) -> None:
        """Drop the expiries that renewals and departures left behind, when they are many or nobody is left."""
        if len(self._expiries) > 2 * len(self._reservations) + 64 or not self._reservations:
            self._expiries = [(held.expires_at, held.peer) for held in self._reservations.values()]
            heapq.heapify(self._expiries)
