"""Tickets: good once, for a while, for one end of one circuit; and nothing is left of them when it has ended."""

import itertools

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentmesh.protocols.relay.book import CircuitEntry
from agentmesh.protocols.relay.tickets import Claim, Fate, Side, TicketTable
from agentmesh.protocols.relay.wire import TICKET_BYTES
from agentmesh.types import PeerId

PEERS = [PeerId.from_ed25519(bytes([number]) * 32) for number in range(4)]
ALICE, BOB, *_ = PEERS
CIRCUIT = CircuitEntry(1, ALICE, BOB)
LIFETIME = 10.0
MOST, MOST_OF_A_PEER = 4, 3


def table(*, max_circuits: int = MOST, max_circuits_per_peer: int = MOST_OF_A_PEER) -> TicketTable:
    """A table whose tickets are counted, not drawn."""
    numbers = itertools.count(1)
    return TicketTable(
        lambda size: next(numbers).to_bytes(size),
        lifetime=LIFETIME,
        max_circuits=max_circuits,
        max_circuits_per_peer=max_circuits_per_peer,
    )


def issued(tickets: TicketTable, circuit: CircuitEntry = CIRCUIT, now: float = 0.0) -> dict[Side, bytes]:
    assert tickets.open(circuit)
    return {side: tickets.issue(circuit, side, now) for side in Side}


def test_a_ticket_says_whose_connection_it_is() -> None:
    tickets = table()
    texts = issued(tickets)
    assert tickets.redeem(texts[Side.FAR], 1.0) == Claim(CIRCUIT, Side.FAR)
    assert tickets.redeem(texts[Side.NEAR], 1.0) == Claim(CIRCUIT, Side.NEAR)


def test_a_ticket_is_as_long_as_is_said_and_no_other_is_drawn() -> None:
    asked: list[int] = []

    def draw(size: int) -> bytes:
        asked.append(size)
        return bytes([len(asked)]) * size

    tickets = TicketTable(draw, lifetime=LIFETIME, max_circuits=1, max_circuits_per_peer=1)
    assert sorted(issued(tickets).values()) == [bytes([1]) * 32, bytes([2]) * 32]
    assert asked == [TICKET_BYTES, TICKET_BYTES] == [32, 32]


def test_a_replayed_ticket_is_told_from_a_guessed_one() -> None:
    tickets = table()
    texts = issued(tickets)
    tickets.redeem(texts[Side.NEAR], 0.0)
    assert tickets.redeem(texts[Side.NEAR], 0.0) is Fate.USED
    assert tickets.redeem(b"guessed", 0.0) is Fate.UNKNOWN
    assert tickets.redeem(texts[Side.FAR][:-1], 0.0) is Fate.UNKNOWN
    assert tickets.redeem(texts[Side.FAR], 0.0) == Claim(CIRCUIT, Side.FAR), "the other end's is as good as it was"


@pytest.mark.parametrize(("after", "good"), [(9.999, True), (10.0, False), (11.0, False)])
def test_a_ticket_is_good_for_its_lifetime(after: float, good: bool) -> None:
    tickets = table()
    texts = issued(tickets, now=100.0)
    found = tickets.redeem(texts[Side.NEAR], 100.0 + after)
    assert found == (Claim(CIRCUIT, Side.NEAR) if good else Fate.EXPIRED)


def test_a_ticket_of_another_router_is_unknown() -> None:
    theirs = TicketTable(lambda size: b"t" * size, lifetime=LIFETIME, max_circuits=1, max_circuits_per_peer=1)
    assert table().redeem(issued(theirs)[Side.NEAR], 0.0) is Fate.UNKNOWN


def test_a_circuit_over_streams_has_no_use_for_its_tickets() -> None:
    tickets = table()
    texts = issued(tickets)
    tickets.redeem(texts[Side.NEAR], 0.0)
    tickets.revoke(CIRCUIT)
    assert tickets.redeem(texts[Side.FAR], 0.0) is Fate.LATE
    assert tickets.redeem(texts[Side.NEAR], 0.0) is Fate.USED
    tickets.revoke(attrs.evolve(CIRCUIT, number=2))  # one that has no tickets


def test_nothing_is_left_of_a_circuit_that_has_ended() -> None:
    tickets = table()
    texts = issued(tickets)
    tickets.forget(CIRCUIT)
    tickets.forget(CIRCUIT)
    assert len(tickets) == 0
    assert {tickets.redeem(text, 0.0) for text in texts.values()} == {Fate.UNKNOWN}


def test_there_are_no_more_tickets_than_there_may_be() -> None:
    tickets = table(max_circuits=3, max_circuits_per_peer=2)
    for number, source in enumerate([ALICE, ALICE, BOB]):
        issued(tickets, CircuitEntry(number, source, PEERS[2]))
    assert not tickets.open(CircuitEntry(3, PEERS[3], BOB))
    tickets.forget(CircuitEntry(2, BOB, PEERS[2]))
    assert not tickets.open(CircuitEntry(4, ALICE, BOB)), "one source does not take them all"
    issued(tickets, CircuitEntry(5, PEERS[3], BOB))


def test_no_ticket_is_shown_by_a_repr() -> None:
    tickets = table()
    text = issued(tickets)[Side.NEAR]
    held = vars(tickets)["_tickets"]
    assert repr(text) not in repr(list(held.values()))


class Tickets(RuleBasedStateMachine):
    """Against a plain model: each ticket that was ever made, and what has become of it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.tickets = table()
        self.numbers = itertools.count(1)
        self.made: list[tuple[bytes, Claim, float]] = []
        self.fates: dict[bytes, Fate] = {}
        self.live: list[CircuitEntry] = []

    @rule(source=st.sampled_from(PEERS), destination=st.sampled_from(PEERS))
    def open(self, source: PeerId, destination: PeerId) -> None:
        circuit = CircuitEntry(next(self.numbers), source, destination)
        own = sum(one.source == source for one in self.live)
        opened = self.tickets.open(circuit)
        assert opened == (len(self.live) < MOST and own < MOST_OF_A_PEER)
        if opened:
            self.live.append(circuit)
            self.issue(circuit, Side.FAR)

    @precondition(lambda self: bool(self.live))
    @rule(data=st.data())
    def issue_the_other(self, data: st.DataObject) -> None:
        circuit = data.draw(st.sampled_from(self.live))
        if Claim(circuit, Side.NEAR) not in [claim for _, claim, _ in self.made]:
            self.issue(circuit, Side.NEAR)

    def issue(self, circuit: CircuitEntry, side: Side) -> None:
        self.made.append((self.tickets.issue(circuit, side, self.now), Claim(circuit, side), self.now))

    @precondition(lambda self: bool(self.made))
    @rule(data=st.data())
    def redeem(self, data: st.DataObject) -> None:
        text, claim, made_at = data.draw(st.sampled_from(self.made))
        expected: Claim | Fate = claim
        if claim.circuit not in self.live:
            expected = Fate.UNKNOWN
        elif text in self.fates:
            expected = self.fates[text]
        elif self.now >= made_at + LIFETIME:
            expected = Fate.EXPIRED
        assert self.tickets.redeem(text, self.now) == expected
        if expected == claim:
            self.fates[text] = Fate.USED

    @rule(text=st.binary(max_size=40))
    def guess(self, text: bytes) -> None:
        if text not in [made for made, _, _ in self.made]:
            assert self.tickets.redeem(text, self.now) is Fate.UNKNOWN

    @rule(seconds=st.floats(0, 12))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: bool(self.live))
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        circuit = data.draw(st.sampled_from(self.live))
        self.tickets.revoke(circuit)
        for text, claim, _ in self.made:
            if claim.circuit == circuit:
                self.fates.setdefault(text, Fate.LATE)

    @precondition(lambda self: bool(self.live))
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        circuit = data.draw(st.sampled_from(self.live))
        self.live.remove(circuit)
        self.tickets.forget(circuit)

    @invariant()
    def as_large_as_the_circuits_that_there_are(self) -> None:
        assert len(self.tickets) == len(self.live)
        held = vars(self.tickets)
        assert len(held["_tickets"]) == sum(claim.circuit in self.live for _, claim, _ in self.made)
        assert held["_by_source"].total() == len(self.live)


TestTickets = Tickets.TestCase
TestTickets.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
