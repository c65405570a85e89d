import itertools
import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agentmesh.protocols.directory.events import Answer, Found, Status
from agentmesh.protocols.directory.lookup import (
    LOOKUP_PATIENCE,
    LOOKUP_TIMEOUT,
    TRANSITIONS,
    Input,
    Lookup,
    State,
)
from agentmesh.types import PeerId

PEERS = [PeerId.from_ed25519(n.to_bytes(32, "big")) for n in range(6)]
A, B, C = (Found(peer, sequence=1) for peer in PEERS[:3])


def test_every_cell_is_decided() -> None:
    assert set(TRANSITIONS) == set(itertools.product(State, Input))


def test_with_nobody_to_ask_it_is_over_at_once() -> None:
    lookup = Lookup([A], 0, 9, 0.0)
    assert (lookup.is_finished, lookup.found, lookup.is_in_vain, lookup.deadline) == (True, (A,), False, math.inf)


def test_it_is_over_when_all_have_answered() -> None:
    lookup = Lookup([], 2, 20, 0.0)
    lookup.receive_answer(Answer(found=(A,)), 0.1)
    assert not lookup.is_finished
    lookup.receive_failure(0.2)
    assert (lookup.is_finished, lookup.found) == (True, (A,))


def test_it_never_waits_for_twenty_when_there_is_one() -> None:
    lookup = Lookup([A], 3, 20, 10.0)
    assert lookup.deadline == 10.0 + LOOKUP_PATIENCE
    lookup.handle_timeout(lookup.deadline)
    assert (lookup.is_finished, lookup.found) == (True, (A,))


def test_with_nothing_in_hand_it_waits_for_longer() -> None:
    lookup = Lookup([], 3, 20, 10.0)
    lookup.handle_timeout(10.0 + LOOKUP_TIMEOUT - 0.01)
    assert not lookup.is_finished
    lookup.receive_answer(Answer(found=(A,)), 11.0)
    assert lookup.deadline == 11.0 + LOOKUP_PATIENCE
    lookup.receive_answer(Answer(found=(B,)), 11.1)
    assert lookup.deadline == 11.0 + LOOKUP_PATIENCE, "once more is found nobody waits for longer"


def test_enough_is_enough() -> None:
    lookup = Lookup([A], 3, 2, 0.0)
    lookup.receive_answer(Answer(found=(B, C)), 0.1)
    assert (lookup.is_finished, lookup.found) == (True, (A, B))


def test_of_two_words_of_a_provider_the_newer_counts() -> None:
    older, newer = Found(PEERS[0], sequence=1), Found(PEERS[0], sequence=2)
    for first, second in ((older, newer), (newer, older)):
        lookup = Lookup([first], 1, 20, 0.0)
        lookup.receive_answer(Answer(found=(second,)), 0.1)
        assert lookup.found == (newer,)


@pytest.mark.parametrize(
    ("answers", "in_vain"),
    [
        ([], False),
        ([None], True),
        ([Answer(Status.UNAVAILABLE)], True),
        ([Answer()], False),
        ([None, Answer()], False),
    ],
)
def test_whether_anybody_could_be_asked(answers: list[Answer | None], in_vain: bool) -> None:
    lookup = Lookup([], len(answers), 20, 0.0)
    for answer in answers:
        if answer is None:
            lookup.receive_failure(0.1)
        else:
            lookup.receive_answer(answer, 0.1)
    assert (lookup.is_finished, lookup.is_in_vain) == (True, in_vain)


def test_what_expires_while_others_are_waited_for_is_left_out() -> None:
    short, long, known = Found(PEERS[0], ttl=0.125), Found(PEERS[1], ttl=5.0), Found(PEERS[2])
    lookup = Lookup([short, known], 2, 20, 10.0)
    lookup.receive_answer(Answer(found=(long,)), 10.0625)
    assert lookup.good(10.0625) == (Found(PEERS[0], ttl=0.0625), known, long)
    assert lookup.good(10.125) == (known, Found(PEERS[1], ttl=4.9375))


class Lookups(RuleBasedStateMachine):
    """However answers come: it ends in time, gives no more than was asked for, and nothing that nobody said."""

    @initialize(asked=st.integers(0, 4), limit=st.integers(1, 4), own=st.lists(st.sampled_from(PEERS), max_size=2))
    def start(self, asked: int, limit: int, own: list[PeerId]) -> None:
        self.now, self.began, self.left, self.limit = 0.0, 0.0, asked, limit
        self.said = {Found(peer, sequence=1) for peer in own}
        self.lookup = Lookup(self.said, asked, limit, 0.0)
        self.first: float | None = 0.0 if own else None

    @rule(peers=st.lists(st.sampled_from(PEERS), max_size=3), sequence=st.integers(1, 3))
    def answer(self, peers: list[PeerId], sequence: int) -> None:
        if not self.left:
            return
        self.left -= 1
        found = {Found(peer, sequence=sequence) for peer in peers}
        if not self.lookup.is_finished:
            self.said |= found
            self.first = self.now if peers and self.first is None else self.first
        self.lookup.receive_answer(Answer(found=tuple(found)), self.now)

    @rule()
    def fail(self) -> None:
        if self.left:
            self.left -= 1
            self.lookup.receive_failure(self.now)

    @rule(seconds=st.floats(0, 1))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.lookup.handle_timeout(self.now)

    @invariant()
    def it_says_what_it_was_told_and_ends(self) -> None:
        found = self.lookup.found
        assert len(found) == len({one.peer for one in found}) <= self.limit
        assert set(found) <= self.said
        assert all(one.sequence == max(o.sequence for o in self.said if o.peer == one.peer) for one in found)
        patience = math.inf if self.first is None else self.first + LOOKUP_PATIENCE
        late = self.now >= min(LOOKUP_TIMEOUT, patience)
        assert self.lookup.is_finished or not (late or self.left == 0)


TestLookups = Lookups.TestCase
TestLookups.settings = settings(max_examples=100, stateful_step_count=20, deadline=None)
