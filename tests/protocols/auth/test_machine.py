import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentmesh.errors import LocalProtocolError, RemoteProtocolError
from agentmesh.protocols.auth.events import CredentialShown, Declined, FrameBroken, PeerLeft, TimedOut
from agentmesh.protocols.auth.machine import (
    ANSWERER_TRANSITIONS,
    AUTH_TIMEOUT,
    OPENER_TRANSITIONS,
    Answerer,
    AnswererInput,
    AnswererState,
    Opener,
    OpenerInput,
    OpenerState,
)
from agentmesh.protocols.auth.wire import MAX_FRAME_BYTES, Answer, encode_answer, encode_frame_message
from agentmesh.wire.framing import encode_frame, encode_varint

OURS, THEIRS = b"opener's token", b"answerer's token"


def test_every_cell_is_decided() -> None:
    assert set(ANSWERER_TRANSITIONS) == set(itertools.product(AnswererState, AnswererInput))
    assert set(OPENER_TRANSITIONS) == set(itertools.product(OpenerState, OpenerInput))


class Handshakes(RuleBasedStateMachine):
    """Two honest peers and a wire that cuts and delays: each is shown the other's credential, once."""

    def __init__(self) -> None:
        super().__init__()
        self.opener, self.answerer = Opener(), Answerer(0.0)
        self.there, self.back = b"", b""
        self.seen: list[object] = []
        self.answered: list[object] = []
        self.sent_answer = False

    @precondition(lambda self: self.opener.state is OpenerState.READY)
    @rule(token=st.sampled_from([OURS, bytes(1000), bytes(60_000)]))
    def show(self, token: bytes) -> None:
        self.token = token
        self.opener.send_credential(token, 0.0)
        self.there += self.opener.data_to_send()

    @rule(size=st.integers(1, 100_000))
    def deliver(self, size: int) -> None:
        data, self.there = self.there[:size], self.there[size:]
        if data:
            self.answerer.receive_data(data, 1.0)
            self.seen += [event] if (event := self.answerer.next_event()) else []

    @precondition(lambda self: bool(self.seen) and not self.sent_answer)
    @rule()
    def answer(self) -> None:
        self.answerer.send_answer(THEIRS)
        self.back += self.answerer.data_to_send()
        self.sent_answer = True

    @rule(size=st.integers(1, 20))
    def bring_back(self, size: int) -> None:
        data, self.back = self.back[:size], self.back[size:]
        if data:
            self.opener.receive_data(data, 2.0)
            self.answered += [event] if (event := self.opener.next_event()) else []

    @invariant()
    def nobody_sees_more_than_was_shown(self) -> None:
        assert not self.seen or self.seen == [CredentialShown(self.token)]
        assert self.answered in ([], [CredentialShown(THEIRS)])
        assert not self.answered or self.sent_answer

    def teardown(self) -> None:
        if self.opener.state is OpenerState.AWAITING:
            self.deliver(100_000)
            assert self.seen == [CredentialShown(self.token)]


TestHandshakes = Handshakes.TestCase
TestHandshakes.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def shown() -> Answerer:
    answerer = Answerer(0.0)
    answerer.receive_data(encode_frame(encode_frame_message(OURS)), 1.0)
    return answerer


def asking() -> Opener:
    opener = Opener()
    opener.send_credential(OURS, 100.0)
    return opener


@pytest.mark.parametrize(
    "data",
    [b"\x00", b"\x02\xff\xff", b"\x80\x00", encode_varint(MAX_FRAME_BYTES + 1), encode_frame(b"\x12\x03mcp")],
)
def test_what_is_no_frame_ends_the_answerer(data: bytes) -> None:
    answerer = Answerer(0.0)
    answerer.receive_data(data, 1.0)
    answerer.receive_data(b"more", 1.0)
    assert (answerer.next_event(), answerer.next_event()) == (FrameBroken(), None)
    assert (answerer.state, answerer.deadline) == (AnswererState.FINISHED, math.inf)


def test_the_largest_frame_is_taken() -> None:
    token = bytes(MAX_FRAME_BYTES - 4)
    message = encode_frame_message(token)
    assert len(message) == MAX_FRAME_BYTES
    answerer = Answerer(0.0)
    answerer.receive_data(encode_frame(message), 1.0)
    assert answerer.next_event() == CredentialShown(token)


def test_an_opener_may_leave() -> None:
    answerer = Answerer(0.0)
    answerer.receive_data(b"\x05half", 1.0)
    answerer.receive_data(b"", 1.0)
    assert (answerer.next_event(), answerer.state) == (PeerLeft(), AnswererState.FINISHED)


def test_a_frame_is_due_within_ten_seconds() -> None:
    answerer = Answerer(50.0)
    answerer.handle_timeout(59.9)
    assert answerer.next_event() is None
    answerer.handle_timeout(50.0 + AUTH_TIMEOUT)
    answerer.handle_timeout(90.0)
    assert (answerer.next_event(), answerer.next_event()) == (TimedOut(), None)


def test_while_it_is_verified_the_clock_stands_and_the_rest_means_nothing() -> None:
    answerer = shown()
    answerer.receive_data(b"rest", 2.0)
    answerer.receive_data(b"", 2.0)
    answerer.handle_timeout(1e9)
    assert (answerer.next_event(), answerer.next_event()) == (CredentialShown(OURS), None)
    answerer.send_answer(THEIRS)
    assert answerer.data_to_send() == encode_frame(encode_answer(Answer(True, THEIRS)))


def test_an_answer_needs_a_question_and_is_given_once() -> None:
    for answerer in (Answerer(0.0), shown()):
        if answerer.state is AnswererState.VERIFYING:
            answerer.send_answer(THEIRS)
            answerer.data_to_send()
        with pytest.raises(LocalProtocolError):
            answerer.send_answer(THEIRS)
        assert answerer.data_to_send() == b""


@pytest.mark.parametrize("data", [b"", b"\x02\xff\xff", b"\x80\x00", encode_frame(b"\x08\x01")])
def test_what_is_no_answer_ends_the_opener(data: bytes) -> None:
    opener = asking()
    with pytest.raises(RemoteProtocolError):
        opener.receive_data(data, 101.0)
    assert (opener.state, opener.deadline) == (OpenerState.FINISHED, math.inf)
    opener.receive_data(b"late", 102.0)
    opener.receive_data(b"", 102.0)
    assert opener.next_event() is None


def test_bytes_before_the_question_are_the_peers_fault() -> None:
    for data in (b"x", b""):
        with pytest.raises(RemoteProtocolError):
            Opener().receive_data(data, 0.0)


def test_a_refusal_says_why() -> None:
    opener = asking()
    opener.receive_data(encode_frame(encode_answer(Answer(False, error="too old"))), 101.0)
    assert opener.next_event() == Declined("too old")


def test_an_answer_is_due_within_ten_seconds() -> None:
    opener = asking()
    opener.handle_timeout(109.9)
    assert opener.next_event() is None
    opener.handle_timeout(110.0)
    opener.handle_timeout(200.0)
    assert (opener.next_event(), opener.next_event()) == (TimedOut(), None)


def test_an_opener_asks_once() -> None:
    opener = asking()
    with pytest.raises(LocalProtocolError):
        opener.send_credential(OURS, 100.0)
    assert opener.state is OpenerState.AWAITING


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_no_bytes_do_more_than_end_a_machine(pieces: list[bytes]) -> None:
    opener, answerer = asking(), Answerer(0.0)
    for piece in pieces:
        answerer.receive_data(piece, 1.0)
    try:
        for piece in pieces:
            opener.receive_data(piece, 101.0)
    except RemoteProtocolError:
        assert opener.state is OpenerState.FINISHED
