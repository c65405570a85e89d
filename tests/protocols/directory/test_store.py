"""Records, their bounds and their end: examples, and a model that is nothing but a list of what was said."""

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agentmesh.protocols.directory.keys import service_key
from agentmesh.protocols.directory.store import Outcome, Record, RecordStore, StoreLimits
from agentmesh.types import Address, PeerId

PEERS = [PeerId.from_ed25519(n.to_bytes(32, "big")) for n in range(6)]
KEYS = [service_key("mcp", str(n)) for n in range(5)]
PLACES = [Address.parse(f"/memory/{n}") for n in (1, 2)]


def record(
    key: int = 0, peer: int = 0, sequence: int = 1, until: float = 100.0, place: int = 0, **more: bool
) -> Record:
    addresses = (PLACES[place].with_peer(PEERS[peer]),)
    return Record(KEYS[key], PEERS[peer], addresses, sequence, until, **more)


def filled(*records: Record, limits: StoreLimits | None = None) -> RecordStore:
    store = RecordStore(limits)
    for one in records:
        assert store.put(one, 0.0) is Outcome.STORED
    return store


def test_a_record_is_there_until_it_expires() -> None:
    store = filled(record(until=100.0))
    assert store.find(KEYS[0], 9, 99.9) == (record(until=100.0),)
    assert store.find(KEYS[0], 9, 100.0) == ()
    assert (len(store), store.keys, store.providers, store.pending_expiries) == (0, 0, 0, 0)


def test_nobodys_lasts_longer_than_fifteen_minutes() -> None:
    store = filled(record(until=1e9))
    assert store.find(KEYS[0], 9, 899.9)
    assert not store.find(KEYS[0], 9, 900.0)


@pytest.mark.parametrize(
    ("newcomer", "outcome"),
    [
        (record(sequence=6, place=1), Outcome.STORED),
        (record(sequence=6, withdrawn=True), Outcome.STORED),
        (record(sequence=5), Outcome.STORED),
        (record(sequence=5, place=1), Outcome.OUTDATED),
        (record(sequence=5, withdrawn=True), Outcome.OUTDATED),
        (record(sequence=4), Outcome.OUTDATED),
        (record(sequence=4, until=800.0), Outcome.OUTDATED),
        (record(sequence=6, until=0.0), Outcome.OUTDATED),
    ],
)
def test_an_older_record_never_takes_the_place_of_a_newer_one(newcomer: Record, outcome: Outcome) -> None:
    store = filled(record(sequence=5))
    assert store.put(newcomer, 0.0) is outcome
    assert store.get(KEYS[0], PEERS[0], 0.0) == (newcomer if outcome is Outcome.STORED else record(sequence=5))
    assert len(store) == 1


def test_what_comes_again_takes_nothing_away() -> None:
    """A copy that another router passes on is no longer from the provider itself, and may have less time left."""
    store = filled(record(until=100.0, direct=True))
    assert store.put(record(until=50.0), 10.0) is Outcome.STORED
    assert store.get(KEYS[0], PEERS[0], 10.0) == record(until=100.0, direct=True)
    assert store.put(record(until=200.0), 10.0) is Outcome.STORED
    assert store.get(KEYS[0], PEERS[0], 10.0) == record(until=200.0, direct=True)


def test_what_is_withdrawn_is_not_found_and_does_not_come_back() -> None:
    store = filled(record(sequence=1), record(sequence=2, withdrawn=True))
    assert store.find(KEYS[0], 9, 1.0) == ()
    assert (len(store), store.keys, store.providers) == (1, 0, 1)
    assert store.put(record(sequence=1), 1.0) is Outcome.OUTDATED
    assert store.put(record(sequence=3), 1.0) is Outcome.STORED
    assert store.find(KEYS[0], 9, 1.0) == (record(sequence=3),)


def test_each_bound_is_filled_and_refuses() -> None:
    store = RecordStore(StoreLimits(max_records=4, max_records_per_provider=2))
    outcomes = [store.put(record(key, peer, until=50.0 + 10 * key), 0.0) for peer in range(3) for key in range(3)]
    full, crowded = Outcome.PROVIDER_FULL, Outcome.STORE_FULL
    assert outcomes == [*(Outcome.STORED,) * 2, full, *(Outcome.STORED,) * 2, full, *(crowded,) * 3]
    assert store.put(record(0, 0, sequence=2, until=55.0), 0.0) is Outcome.STORED, "what is there can be renewed"
    assert store.next_expiry(PEERS[0]) == 55.0
    assert store.next_expiry() == 50.0
    assert store.put(record(0, 2), 50.0) is Outcome.STORED, "and room comes with time"


def test_the_default_bounds() -> None:
    assert StoreLimits() == StoreLimits(65536, 256, 900.0)


def test_whoever_was_not_given_for_the_longest_time_is_given_next() -> None:
    store = filled(*(record(peer=peer) for peer in range(5)))
    given = [[one.provider for one in store.find(KEYS[0], 2, 0.0)] for _ in range(5)]
    assert sorted(peer for answer in given for peer in answer) == sorted(PEERS[:5] * 2)
    assert {one.provider for one in store.find(KEYS[0], 5, 0.0)} == set(PEERS[:5])


def test_a_peer_that_is_out_leaves_nothing() -> None:
    store = filled(*(record(key, peer) for key in range(3) for peer in range(2)), record(4, 0, withdrawn=True))
    store.forget(PEERS[0])
    store.forget(PEERS[5])
    assert {one.provider for one in store} == {PEERS[1]}
    assert (len(store), store.keys, store.providers) == (3, 3, 1)


def test_only_the_very_record_is_removed() -> None:
    store = filled(record())
    store.remove(record(sequence=2))
    store.remove(record(peer=1))
    assert len(store) == 1
    store.remove(record())
    assert len(store) == store.keys == store.providers == 0


def test_renewals_leave_no_heap_of_instants() -> None:
    store = RecordStore()
    for n in range(1000):
        store.put(record(sequence=n, until=900.0), 0.0)
    assert store.pending_expiries <= 2 + 64


LIMITS = StoreLimits(max_records=8, max_records_per_provider=3, record_ttl=100.0)


class Stores(RuleBasedStateMachine):
    """Against a plain map of what is held: nothing expired is given, nothing newer lost, every gauge is recomputed."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.store = RecordStore(LIMITS)
        self.held: dict[tuple[bytes, PeerId], Record] = {}

    @rule(
        key=st.integers(0, 4),
        peer=st.integers(0, 5),
        sequence=st.integers(0, 5),
        ttl=st.floats(-1, 150),
        place=st.integers(0, 1),
        withdrawn=st.booleans(),
        direct=st.booleans(),
    )
    def put(self, key: int, peer: int, sequence: int, ttl: float, place: int, withdrawn: bool, direct: bool) -> None:
        said = record(key, peer, sequence, self.now + ttl, place, withdrawn=withdrawn, direct=direct)
        outcome = self.store.put(said, self.now)
        name = said.key, said.provider
        old = self.held.get(name)
        mine = sum(provider == said.provider for _, provider in self.held)
        if outcome is Outcome.STORED:
            kept = attrs.evolve(said, expires_at=min(said.expires_at, self.now + 100.0))
            if old is not None and old.sequence == sequence:
                latest = max(kept.expires_at, old.expires_at)
                kept = attrs.evolve(kept, expires_at=latest, direct=direct or old.direct)
            assert old is None or old.sequence <= sequence
            assert old is not None or (mine < 3 and len(self.held) < 8)
            self.held[name] = kept
        elif outcome is Outcome.OUTDATED:
            assert ttl <= 0 or said.expires_at <= self.now or (old is not None and old.sequence >= sequence)
        else:
            assert old is None
            assert mine == 3 if outcome is Outcome.PROVIDER_FULL else len(self.held) == 8

    @rule(key=st.integers(0, 4), limit=st.integers(1, 7))
    def find(self, key: int, limit: int) -> None:
        found = self.store.find(KEYS[key], limit, self.now)
        there = [one for one in self.held.values() if one.key == KEYS[key] and not one.withdrawn]
        assert len(found) == min(limit, len(there))
        assert all(one in there for one in found)

    @rule(peer=st.sampled_from(PEERS))
    def forget(self, peer: PeerId) -> None:
        self.store.forget(peer)
        self.held = {name: one for name, one in self.held.items() if one.provider != peer}

    @rule(seconds=st.floats(0, 80))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.store.expire(self.now)
        self.held = {name: one for name, one in self.held.items() if one.expires_at > self.now}

    @invariant()
    def the_indexes_are_what_is_held(self) -> None:
        held = list(self.held.values())
        assert sorted(self.store, key=str) == sorted(held, key=str)
        assert len(self.store) == len(held)
        assert self.store.keys == len({one.key for one in held if not one.withdrawn})
        assert self.store.providers == len({one.provider for one in held})
        assert len(held) <= self.store.pending_expiries <= 2 * len(held) + 64


TestStores = Stores.TestCase
TestStores.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
