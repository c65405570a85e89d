"""After an offer was taken: each state and input is decided, and two sides never misunderstand each other."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentmesh.errors import LocalProtocolError, RemoteProtocolError
from agentmesh.protocols.relay import pairing, rendezvous
from agentmesh.protocols.relay.events import TimedOut
from agentmesh.protocols.relay.pairing import Pairing, StreamsChosen
from agentmesh.protocols.relay.rendezvous import FALLBACKS, Input, Rendezvous
from agentmesh.protocols.relay.tickets import Side
from agentmesh.protocols.relay.wire import encode_carried_by_streams
from agentmesh.wire.framing import encode_frame

WORD = encode_frame(encode_carried_by_streams(True))


def test_every_cell_is_decided() -> None:
    assert set(pairing.TRANSITIONS) == set(itertools.product(pairing.State, pairing.Input))
    assert set(rendezvous.TRANSITIONS) == set(itertools.product(rendezvous.State, rendezvous.Input))


# ── the relay's decision ──


@given(st.lists(st.sampled_from([*Side, *FALLBACKS]), max_size=8))
def test_what_comes_first_decides_and_it_is_decided_once(happenings: list[Side | Input]) -> None:
    meeting = Rendezvous()
    came: set[Side] = set()
    first: rendezvous.State | None = None
    for what in happenings:
        if isinstance(what, Side):
            if what in came or first is not None:
                with pytest.raises(LocalProtocolError):
                    meeting.comes(what)
                continue
            came.add(what)
            meeting.comes(what)
            first = rendezvous.State.SPLICED if len(came) == 2 else None
        else:
            meeting.receive(what)
            first = first or rendezvous.State.STREAMED
        assert meeting.is_decided == (first is not None)
        assert (meeting.fallback is not None) == (first is rendezvous.State.STREAMED)
        assert meeting.state is first or first is None or meeting.state is rendezvous.State.BROKEN
        assert meeting.state is not rendezvous.State.BROKEN or first is rendezvous.State.SPLICED


@pytest.mark.parametrize("late", FALLBACKS)
def test_an_end_that_leaves_a_spliced_circuit_breaks_it_and_a_timeout_does_not(late: Input) -> None:
    meeting = Rendezvous()
    for side in Side:
        meeting.comes(side)
    meeting.receive(late)
    broken = late is not Input.TIMEOUT
    assert meeting.state is (rendezvous.State.BROKEN if broken else rendezvous.State.SPLICED)
    assert meeting.fallback is None


# ── on a stream ──


@pytest.mark.parametrize("cut", range(len(WORD) + 1))
def test_the_word_is_heard_however_it_is_cut_and_the_rest_is_kept(cut: int) -> None:
    heard = Pairing(WORD[:cut], 5.0)
    for piece in (WORD[cut:], b"the circuit's", b" bytes"):
        if piece:
            heard.receive_data(piece, 0.0)
    assert heard.next_event() == StreamsChosen(True)
    assert heard.next_event() is None
    assert heard.deadline == math.inf
    heard.send_streams()
    assert heard.state is pairing.State.STREAMED
    assert heard.data_to_send() == encode_frame(encode_carried_by_streams(False))
    assert heard.trailing() == b"the circuit's bytes"


@pytest.mark.parametrize("garbage", [b"\x00", encode_frame(b"\x12\x00"), encode_frame(bytes(3)), b"\xff" * 9])
def test_what_is_no_word_finishes_it(garbage: bytes) -> None:
    for say_first in (False, True):
        broken = Pairing(b"", 5.0)
        if say_first:
            broken.send_streams()
        with pytest.raises(RemoteProtocolError):
            broken.receive_data(garbage, 0.0)
        assert broken.state is pairing.State.FINISHED
        for data in (b"more", b""):
            with pytest.raises(RemoteProtocolError):
                broken.receive_data(data, 0.0)


def test_an_end_before_the_word_is_a_fault_and_after_it_the_circuits() -> None:
    with pytest.raises(RemoteProtocolError):
        Pairing(b"", 5.0).receive_data(b"", 0.0)
    heard = Pairing(WORD, 5.0)
    heard.receive_data(b"", 0.0)
    heard.send_streams()
    heard.receive_data(b"", 0.0)
    assert heard.state is pairing.State.STREAMED


def test_who_says_nothing_is_given_up_at_the_deadline() -> None:
    quiet = Pairing(b"", 5.0)
    quiet.handle_timeout(4.9)
    assert quiet.next_event() is None
    quiet.handle_timeout(5.0)
    assert quiet.next_event() == TimedOut()
    assert (quiet.state, quiet.deadline) == (pairing.State.FINISHED, math.inf)


def test_nothing_may_be_said_on_the_stream_of_a_spliced_circuit() -> None:
    for early in (WORD, WORD[:1]):
        with pytest.raises((LocalProtocolError, RemoteProtocolError)):
            Pairing(early, 5.0).splice()
    spliced = Pairing(b"", 5.0)
    spliced.splice()
    spliced.receive_data(b"", 0.0)  # its end is the circuit's
    with pytest.raises(RemoteProtocolError):
        spliced.receive_data(WORD, 0.0)


def test_it_is_said_once() -> None:
    said = Pairing(b"", 5.0)
    said.send_streams()
    for command in (said.send_streams, said.splice):
        with pytest.raises(LocalProtocolError):
            command()


class TwoSides(RuleBasedStateMachine):
    """A member and its relay, over a wire that cuts and delays. Either may want streams; the relay alone splices."""

    def __init__(self) -> None:
        super().__init__()
        self.sides = Pairing(b"", 5.0), Pairing(b"", 5.0)
        self.wire = [b"", b""]  # what each has sent and the other has not got
        self.circuit = [b"", b""]  # what each has sent of the circuit's own
        self.said, self.heard = [False, False], [False, False]
        self.spliced = False

    def flush(self, who: int) -> None:
        self.wire[who] += self.sides[who].data_to_send()

    @precondition(lambda self: not self.spliced)
    @rule(who=st.integers(0, 1))
    def say(self, who: int) -> None:
        if not self.said[who]:
            self.sides[who].send_streams(missed=bool(who))
            self.said[who] = True
            self.flush(who)

    @rule(who=st.integers(0, 1), size=st.integers(1, 6))
    def deliver(self, who: int, size: int) -> None:
        data, self.wire[1 - who] = self.wire[1 - who][:size], self.wire[1 - who][size:]
        if data:
            self.sides[who].receive_data(data, 0.0)
            if event := self.sides[who].next_event():
                assert event == StreamsChosen(who == 0)
                self.heard[who] = True

    @precondition(lambda self: not any(self.said))
    @rule()
    def splice(self) -> None:
        if not self.spliced:
            self.spliced = True
            for side in self.sides:
                side.splice()

    @rule(who=st.integers(0, 1), data=st.binary(min_size=1, max_size=9))
    def talk(self, who: int, data: bytes) -> None:
        if self.said[who]:
            self.wire[who] += data
            self.circuit[who] += data

    @invariant()
    def streams_are_agreed_on_by_both_or_by_none(self) -> None:
        for side, said, heard in zip(self.sides, self.said, self.heard, strict=True):
            assert (side.state is pairing.State.STREAMED) == (said and heard)
        assert not (self.spliced and any(self.said))

    def teardown(self) -> None:
        if not any(self.said):
            return
        for who in (0, 1):
            self.say(who)
        for who in (0, 1):
            self.deliver(who, 10_000)
        assert [side.state for side in self.sides] == [pairing.State.STREAMED] * 2
        assert [side.trailing() for side in self.sides] == self.circuit[::-1]


TestTwoSides = TwoSides.TestCase
TestTwoSides.settings = settings(max_examples=100, stateful_step_count=20, deadline=None)
