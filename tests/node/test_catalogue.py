"""Which routers are chosen, and when again: examples, and a model that sees every order of events."""

import math
from collections.abc import Sequence
from random import Random

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentmesh.control_plane.routers import RouterRecord
from agentmesh.errors import LocalProtocolError
from agentmesh.node.catalogue import (
    FIRST_REDIAL_WAIT,
    MAX_ATTEMPTS,
    MAX_ROUTERS,
    ROWS,
    SHUN_TIME,
    STEADY_TIME,
    TRANSITIONS,
    Catalogue,
    Input,
    State,
)
from agentmesh.types import Address, PeerId

PEERS = [PeerId.from_ed25519(bytes([number]) * 32) for number in range(6)]


def record(
    peer: PeerId, connections: int = 0, connection_limit: int = 0, text: str = "/ip4/10.0.0.1/tcp/1"
) -> RouterRecord:
    return RouterRecord(peer, (Address.parse(text).with_peer(peer),), {}, connections, connection_limit)


RECORDS = [record(peer) for peer in PEERS]


def catalogue_of(*records: RouterRecord, wanted: int = 2) -> Catalogue:
    catalogue = Catalogue(wanted, Random(1))
    catalogue.update(records)
    return catalogue


def peers(records: Sequence[RouterRecord]) -> list[PeerId]:
    return [record.peer for record in records]


def test_every_state_and_input_is_decided() -> None:
    assert set(TRANSITIONS) == {(state, got) for state in State for got in Input}
    assert all(len(row) == len(Input) for row in ROWS.values())


def test_as_many_as_are_wanted_are_chosen_and_every_one_when_there_are_fewer() -> None:
    assert len(catalogue_of(*RECORDS).choose(0.0)) == 2
    assert len(catalogue_of(*RECORDS[:1]).choose(0.0)) == 1
    assert catalogue_of().choose(0.0) == []


def test_the_least_loaded_come_first_and_an_unknown_load_is_half() -> None:
    full, half, idle = record(PEERS[0], 90, 100), record(PEERS[1]), record(PEERS[2], 10, 100)
    catalogue = catalogue_of(full, half, idle, wanted=1)
    for expected in (idle, half, full):
        assert catalogue.choose(0.0) == [expected]
        catalogue.failed(expected.peer, 0.0)


def test_a_load_that_makes_no_sense_counts_as_full_or_idle() -> None:
    over, negative = record(PEERS[0], 900, 100), record(PEERS[1], -5, 100)
    assert catalogue_of(over, negative, wanted=1).choose(0.0) == [negative]


def test_routers_of_like_load_are_spread() -> None:
    first = {Catalogue(1, Random(seed)) for seed in range(50)}
    chosen = set[PeerId]()
    for catalogue in first:
        catalogue.update(RECORDS)
        chosen.update(peers(catalogue.choose(0.0)))
    assert chosen == set(PEERS)


def test_failures_wait_two_seconds_doubling_and_the_sixth_is_shunned() -> None:
    catalogue = catalogue_of(RECORDS[0])
    catalogue.choose(0.0)
    catalogue.update(RECORDS[:2])
    catalogue.choose(0.0)
    catalogue.admitted(PEERS[1], 0.0)
    now, waits = 0.0, list[float]()
    for _ in range(MAX_ATTEMPTS + 1):
        if waits:
            assert catalogue.choose(now) == [RECORDS[0]]
        catalogue.failed(PEERS[0], now)
        waits.append(catalogue.deadline - now)
        assert catalogue.choose(math.nextafter(catalogue.deadline, 0)) == []
        now = catalogue.deadline
    assert waits == [2, 4, 8, 16, 32, SHUN_TIME, 2]


def test_whoever_shuns_every_router_tries_them_in_turn() -> None:
    catalogue = catalogue_of(*RECORDS[:2])
    now, attempts = 0.0, list[tuple[float, PeerId]]()
    while now < 400:
        for chosen in catalogue.choose(now):
            attempts.append((now, chosen.peer))
            catalogue.failed(chosen.peer, now)
        now = catalogue.deadline
    times = [at for at, peer in attempts if peer == PEERS[0]]
    assert times == [at for at, peer in attempts if peer == PEERS[1]]
    assert times == [0, 2, 6, 14, 30, 62, 62 + 60, 62 + 120, 62 + 180, 62 + 240, 62 + 300]
    (one,) = catalogue.choose(now)
    catalogue.admitted(one.peer, now)
    (other,) = set(PEERS[:2]) - {one.peer}
    assert catalogue.choose(now + SHUN_TIME - 61) == []  # there is something left now
    assert peers(catalogue.choose(now + SHUN_TIME)) == [other]


def test_a_router_that_failed_is_replaced_by_another_at_once() -> None:
    catalogue = catalogue_of(*RECORDS[:2], wanted=1)
    (first,) = catalogue.choose(0.0)
    catalogue.failed(first.peer, 0.0)
    (second,) = catalogue.choose(0.0)
    assert second != first


def test_a_router_that_was_lost_is_tried_again_at_once_but_after_the_others() -> None:
    catalogue = catalogue_of(*RECORDS[:2], wanted=1)
    (first,) = catalogue.choose(0.0)
    catalogue.admitted(first.peer, 0.0)
    catalogue.lost(first.peer, STEADY_TIME)
    (second,) = catalogue.choose(STEADY_TIME)
    assert second != first
    catalogue.failed(second.peer, STEADY_TIME)
    assert catalogue.choose(STEADY_TIME) == [first]


def test_a_router_that_admits_and_drops_is_left_alone_like_one_that_fails() -> None:
    catalogue = catalogue_of(RECORDS[0])
    now, waits = 0.0, list[float]()
    for _ in range(3):
        catalogue.choose(now)
        catalogue.admitted(PEERS[0], now)
        catalogue.lost(PEERS[0], now + 1)
        waits.append(catalogue.deadline - now - 1)
        now = catalogue.deadline
    assert waits == [2, 4, 8]


def test_an_attachment_that_lasted_forgives_earlier_failures() -> None:
    catalogue = catalogue_of(RECORDS[0])
    catalogue.choose(0.0)
    catalogue.failed(PEERS[0], 0.0)
    catalogue.choose(2.0)
    catalogue.admitted(PEERS[0], 2.0)
    catalogue.lost(PEERS[0], 2.0 + STEADY_TIME)
    assert catalogue.choose(2.0 + STEADY_TIME) == [RECORDS[0]]
    catalogue.failed(PEERS[0], 100.0)
    assert catalogue.deadline == 100.0 + FIRST_REDIAL_WAIT


def test_a_router_that_is_held_is_kept_when_it_is_not_listed_any_more_and_forgotten_once_lost() -> None:
    catalogue = catalogue_of(*RECORDS[:2])
    catalogue.choose(0.0)
    catalogue.admitted(PEERS[0], 0.0)
    catalogue.admitted(PEERS[1], 0.0)
    catalogue.update(RECORDS[1:2])
    assert peers(catalogue.attached) == PEERS[:2]
    assert catalogue.listed == (RECORDS[1],)
    catalogue.lost(PEERS[0], 100.0)
    assert catalogue.state(PEERS[0]) is None
    assert catalogue.choose(100.0) == []


def test_new_addresses_of_a_router_are_taken_on_also_while_it_is_held() -> None:
    catalogue = catalogue_of(RECORDS[0])
    catalogue.choose(0.0)
    catalogue.admitted(PEERS[0], 0.0)
    moved = record(PEERS[0], text="/ip4/10.0.0.9/tcp/9")
    catalogue.update([moved])
    assert catalogue.attached == (moved,)
    assert catalogue.addresses(PEERS[0]) == moved.addresses
    assert catalogue.addresses(PEERS[1]) == ()


def test_a_router_behind_a_router_is_none_for_us() -> None:
    behind = record(PEERS[0], text=f"/ip4/10.0.0.1/tcp/1/p2p/{PEERS[1]}/p2p-circuit")
    both = attrs.evolve(RECORDS[2], addresses=(*RECORDS[2].addresses, *behind.addresses))
    catalogue = catalogue_of(behind, both)
    assert catalogue.choose(0.0) == [RECORDS[2]]


def test_a_list_is_read_up_to_its_bound() -> None:
    many = (record(PeerId.from_ed25519(number.to_bytes(32, "big"))) for number in range(MAX_ROUTERS + 10))
    catalogue = catalogue_of(*many)
    assert len(catalogue) == MAX_ROUTERS
    catalogue.update([])
    assert len(catalogue) == 0


@pytest.mark.parametrize("misuse", ["admitted", "failed", "lost"])
@pytest.mark.parametrize("peer", [PEERS[0], PEERS[1]], ids=["free", "unknown"])
def test_a_report_that_does_not_fit_is_our_own_fault(misuse: str, peer: PeerId) -> None:
    catalogue = catalogue_of(RECORDS[0])
    with pytest.raises(LocalProtocolError):
        getattr(catalogue, misuse)(peer, 0.0)
    assert catalogue.state(PEERS[0]) is State.FREE


def test_an_attempt_that_is_under_way_can_not_be_lost() -> None:
    catalogue = catalogue_of(RECORDS[0])
    catalogue.choose(0.0)
    with pytest.raises(LocalProtocolError, match="while attaching"):
        catalogue.lost(PEERS[0], 0.0)


@attrs.define
class Standing:
    """What the model knows of one router."""

    state: str = "free"
    failures: int = 0
    not_before: float = -math.inf
    since: float = 0.0


class Driver(RuleBasedStateMachine):
    """Every order of lists, choices, outcomes and clock, against a model with none of the catalogue's code."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.wanted = 2
        self.catalogue = Catalogue(self.wanted, Random(0))
        self.listed = set[PeerId]()
        self.model = dict[PeerId, Standing]()

    def those(self, state: str) -> list[PeerId]:
        return [peer for peer, standing in self.model.items() if standing.state == state]

    @rule(listed=st.lists(st.sampled_from(RECORDS), unique_by=lambda record: record.peer))
    def read(self, listed: list[RouterRecord]) -> None:
        self.catalogue.update(listed)
        self.listed = set(peers(listed))
        for peer in self.listed:
            self.model.setdefault(peer, Standing())
        self.forget()

    @rule()
    def choose(self) -> None:
        ready = [p for p in self.those("free") if p in self.listed and self.model[p].not_before <= self.now]
        if (last := self.last_resort()) is not None and self.model[last].not_before - SHUN_TIME + 60 <= self.now:
            ready = ready or [last]
        missing = self.wanted - len(self.those("attaching")) - len(self.those("attached"))
        chosen = peers(self.catalogue.choose(self.now))
        assert len(chosen) == len(set(chosen)) == min(max(missing, 0), len(ready))
        assert set(chosen) <= set(ready)
        for peer in chosen:
            self.model[peer].state = "attaching"
        for peer in ready:
            if self.model[peer].not_before <= self.now:
                self.model[peer].failures %= 6

    @precondition(lambda self: self.those("attaching"))
    @rule(data=st.data())
    def admit(self, data: st.DataObject) -> None:
        peer = data.draw(st.sampled_from(self.those("attaching")))
        self.catalogue.admitted(peer, self.now)
        self.model[peer].state, self.model[peer].since = "attached", self.now

    @precondition(lambda self: self.those("attaching"))
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        peer = data.draw(st.sampled_from(self.those("attaching")))
        self.catalogue.failed(peer, self.now)
        self.set_back(self.model[peer])
        self.forget()

    @precondition(lambda self: self.those("attached"))
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        peer = data.draw(st.sampled_from(self.those("attached")))
        self.catalogue.lost(peer, self.now)
        standing = self.model[peer]
        if self.now - standing.since < STEADY_TIME:
            self.set_back(standing)
        else:
            standing.state, standing.failures, standing.not_before = "free", 0, -math.inf
        self.forget()

    @rule(seconds=st.sampled_from([0.5, 2.0, 10.0, 61.0, 300.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    def set_back(self, standing: Standing) -> None:
        standing.failures = min(standing.failures + 1, 6)
        wait = SHUN_TIME if standing.failures == 6 else 2.0**standing.failures
        standing.state, standing.not_before = "free", self.now + wait

    def last_resort(self) -> PeerId | None:
        """Of whoever shuns all that there are, the one whose time comes first."""
        standings = {p: s for p, s in self.model.items() if p in self.listed or s.state != "free"}
        shunned = [p for p, s in standings.items() if s.state == "free" and s.failures == 6 and s.not_before > self.now]
        if not shunned or len(shunned) < len(standings):
            return None
        return min(shunned, key=lambda peer: standings[peer].not_before)

    def forget(self) -> None:
        self.model = {p: s for p, s in self.model.items() if p in self.listed or s.state != "free"}

    @invariant()
    def never_more_than_wanted(self) -> None:
        assert len(self.those("attaching")) + len(self.those("attached")) <= self.wanted
        assert set(peers(self.catalogue.attached)) == set(self.those("attached"))
        assert self.catalogue.is_short == (len(self.those("attached")) < self.wanted)

    @invariant()
    def nothing_is_kept_that_is_neither_listed_nor_held(self) -> None:
        assert len(self.catalogue) == len(self.model) <= len(PEERS)
        assert set(peers(self.catalogue.listed)) == self.listed
        assert all(self.catalogue.state(peer) is not None for peer in self.model)

    @invariant()
    def the_deadline_wakes_whoever_waits_for_the_next_router(self) -> None:
        waits = [s.not_before for s in self.model.values() if s.state == "free" and s.not_before > self.now]
        assert self.catalogue.deadline <= min(waits, default=math.inf)
        if (last := self.last_resort()) is not None:
            assert self.catalogue.deadline == self.model[last].not_before - SHUN_TIME + 60


TestCatalogueInEveryOrder = Driver.TestCase
