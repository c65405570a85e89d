"""The budget: every limit is filled, and every gauge equals what a walk through the book counts."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agentmesh.protocols.relay.book import BookLimits, CircuitEntry, RelayBook, Reservation, source_of
from agentmesh.protocols.relay.events import Status
from agentmesh.types import Address, PeerId

PEERS = [PeerId.from_ed25519(bytes([n]) * 32) for n in range(8)]
FOREVER = 1e18
SMALL = BookLimits(max_reservations=4, max_reservations_per_source=2, max_circuits_per_peer=2, reservation_ttl=100.0)


def test_a_reservation_lasts_an_hour_or_as_long_as_the_admission() -> None:
    book = RelayBook()
    assert book.reserve(PEERS[0], "a", FOREVER, 1000.0) == Reservation(PEERS[0], "a", 4600.0)
    assert book.reserve(PEERS[1], "a", 1500.0, 1000.0) == Reservation(PEERS[1], "a", 1500.0)
    assert book.reserve(PEERS[2], "a", 1000.0, 1000.0) is Status.PERMISSION_DENIED
    assert book.holds(PEERS[1], 1499.9)
    assert not book.holds(PEERS[1], 1500.0)


def test_the_place_after_the_last_is_refused_and_a_renewal_is_not() -> None:
    book = RelayBook(SMALL)
    for peer in PEERS[:4]:
        assert isinstance(book.reserve(peer, None, FOREVER, 0.0), Reservation)
    assert book.reserve(PEERS[4], None, FOREVER, 1.0) is Status.RESERVATION_REFUSED
    assert book.reserve(PEERS[0], None, FOREVER, 2.0) == Reservation(PEERS[0], None, 102.0)
    assert isinstance(book.reserve(PEERS[4], None, FOREVER, 100.0), Reservation)
    assert {held.peer for held in book.reservations} == {PEERS[0], PEERS[4]}


def test_one_source_has_its_share_and_no_more() -> None:
    book = RelayBook(SMALL)
    for peer in PEERS[:2]:
        assert isinstance(book.reserve(peer, "a", FOREVER, 0.0), Reservation)
    assert isinstance(book.reserve(PEERS[2], "b", FOREVER, 0.0), Reservation)
    assert book.reserve(PEERS[3], "a", FOREVER, 0.0) is Status.RESOURCE_LIMIT_EXCEEDED
    assert isinstance(book.reserve(PEERS[1], "a", FOREVER, 1.0), Reservation)
    assert book.reserve(PEERS[2], "a", FOREVER, 1.0) is Status.RESOURCE_LIMIT_EXCEEDED
    assert book.holds(PEERS[2], 1.0), "what it had, it keeps"
    book.release(PEERS[0])
    assert isinstance(book.reserve(PEERS[2], "a", FOREVER, 1.0), Reservation)
    assert (book.reservation_count_of("a"), book.reservation_count_of("b")) == (2, 0)


def test_releasing_what_is_not_held_does_nothing() -> None:
    book = RelayBook()
    book.release(PEERS[0])
    assert book.reservations == ()


def test_the_old_expiries_of_renewed_reservations_do_not_pile_up() -> None:
    book = RelayBook()
    for second in range(10_000):
        book.reserve(PEERS[second % 2], None, FOREVER, float(second))
    assert len(book._expiries) <= 2 * 2 + 65  # pyright: ignore[reportPrivateUsage]
    assert len(book.reservations) == 2


def test_whoever_has_left_leaves_no_expiry_behind() -> None:
    book = RelayBook()
    peers = [PeerId.from_ed25519(bytes([n]) * 32) for n in range(200)]
    for peer in peers:
        book.reserve(peer, None, FOREVER, 0.0)
    for left, peer in zip(reversed(range(200)), peers, strict=True):
        book.release(peer)
        assert len(book._expiries) <= (2 * left + 64 if left else 0)  # pyright: ignore[reportPrivateUsage]


def test_a_circuit_needs_a_reservation_at_its_far_end() -> None:
    book = RelayBook(SMALL)
    assert book.open_circuit(PEERS[0], PEERS[1], 0.0) is Status.NO_RESERVATION
    book.reserve(PEERS[1], None, FOREVER, 0.0)
    assert isinstance(book.open_circuit(PEERS[0], PEERS[1], 0.0), CircuitEntry)
    assert book.open_circuit(PEERS[0], PEERS[1], 100.0) is Status.NO_RESERVATION
    assert book.open_circuit(PEERS[1], PEERS[1], 0.0) is Status.PERMISSION_DENIED


@pytest.mark.parametrize("full", ["source", "destination"])
def test_the_circuit_after_the_last_of_either_end_is_refused(full: str) -> None:
    book = RelayBook(SMALL)
    for peer in PEERS[1:4]:
        book.reserve(peer, None, FOREVER, 0.0)
    pairs = [(0, 1), (0, 2), (0, 3)] if full == "source" else [(4, 1), (5, 1), (0, 1)]
    *first, last = [(PEERS[a], PEERS[b]) for a, b in pairs]
    entries = [book.open_circuit(source, destination, 0.0) for source, destination in first]
    assert book.open_circuit(*last, 0.0) is Status.RESOURCE_LIMIT_EXCEEDED
    assert isinstance(entries[0], CircuitEntry)
    book.close_circuit(entries[0])
    book.close_circuit(entries[0])
    assert isinstance(book.open_circuit(*last, 0.0), CircuitEntry)
    assert len(book.circuits) == 2


def test_the_default_limits_fill() -> None:
    book = RelayBook()
    book.reserve(PEERS[0], None, FOREVER, 0.0)
    for _ in range(book.limits.max_circuits_per_peer):
        assert isinstance(book.open_circuit(PEERS[1], PEERS[0], 0.0), CircuitEntry)
    assert book.open_circuit(PEERS[2], PEERS[0], 0.0) is Status.RESOURCE_LIMIT_EXCEEDED
    assert len(book.circuits) == 1024


@pytest.mark.parametrize(
    ("address", "source"),
    [
        (None, None),
        ("/memory/7", None),
        ("/ip4/127.0.0.1/tcp/1", None),
        ("/ip6/::1/tcp/1", None),
        ("/ip6/::ffff:127.0.0.1/tcp/1", None),
        ("/ip4/192.0.2.7/tcp/1", "192.0.2.7"),
        ("/ip4/192.0.2.7/tcp/9/ws", "192.0.2.7"),
        ("/ip6/::ffff:192.0.2.7/tcp/1", "192.0.2.7"),
        ("/ip6/2001:db8:1:2ff:3:4:5:6/tcp/1", "2001:db8:1:200::/56"),
        ("/ip6/2001:db8:1:200::9/tcp/2", "2001:db8:1:200::/56"),
        ("/dns4/member.example/tcp/1", None),
    ],
)
def test_a_source_is_a_host_or_a_subscribers_prefix(address: str | None, source: str | None) -> None:
    assert source_of(None if address is None else Address.parse(address)) == source


class Books(RuleBasedStateMachine):
    """A book beside a list of what must be true of it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.book = RelayBook(SMALL)
        self.reserved: dict[PeerId, tuple[str | None, float]] = {}
        self.open: list[CircuitEntry] = []

    @rule(
        peer=st.sampled_from(PEERS),
        source=st.sampled_from([None, "a", "b"]),
        admitted=st.floats(-10, 300),
    )
    def reserve(self, peer: PeerId, source: str | None, admitted: float) -> None:
        until = self.now + admitted
        decision = self.book.reserve(peer, source, until, self.now)
        self._forget_expired()
        if isinstance(decision, Reservation):
            self.reserved[peer] = (source, min(until, self.now + 100.0))
            assert decision == Reservation(peer, *self.reserved[peer])
        elif decision is Status.RESERVATION_REFUSED:
            assert len(self.reserved) == 4
            assert peer not in self.reserved
        elif decision is Status.RESOURCE_LIMIT_EXCEEDED:
            assert sum(held == source for held, _ in self.reserved.values()) == 2
        else:
            assert decision is Status.PERMISSION_DENIED
            assert until <= self.now

    @rule(peer=st.sampled_from(PEERS))
    def release(self, peer: PeerId) -> None:
        self.book.release(peer)
        self.reserved.pop(peer, None)

    @rule(source=st.sampled_from(PEERS), destination=st.sampled_from(PEERS))
    def connect(self, source: PeerId, destination: PeerId) -> None:
        decision = self.book.open_circuit(source, destination, self.now)
        if isinstance(decision, CircuitEntry):
            self.open.append(decision)
            assert self.reserved[destination][1] > self.now

    @rule(which=st.integers(0, 100))
    def disconnect(self, which: int) -> None:
        if self.open:
            self.book.close_circuit(self.open.pop(which % len(self.open)))

    @rule(seconds=st.floats(0, 80))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.book.expire(self.now)
        self._forget_expired()

    def _forget_expired(self) -> None:
        self.reserved = {peer: held for peer, held in self.reserved.items() if held[1] > self.now}

    @invariant()
    def gauges_are_the_recomputed_sets(self) -> None:
        assert {held.peer: (held.source, held.expires_at) for held in self.book.reservations} == self.reserved
        assert sorted(entry.number for entry in self.book.circuits) == sorted(entry.number for entry in self.open)
        for source in ("a", "b"):
            assert self.book.reservation_count_of(source) == sum(held == source for held, _ in self.reserved.values())
        for peer in PEERS:
            mine = [entry for entry in self.open if peer in (entry.source, entry.destination)]
            assert sorted(entry.number for entry in self.book.circuits_of(peer)) == sorted(e.number for e in mine)
            assert len(mine) <= 2


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
