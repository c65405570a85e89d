import itertools
import math

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agentmesh.errors import LimitExceededError, LocalProtocolError, RemoteProtocolError
from agentmesh.protocols.dialback.events import Answered, Asked, PeerLeft, TimedOut
from agentmesh.protocols.dialback.machine import (
    ANSWER_TIMEOUT,
    ANSWERER_TRANSITIONS,
    ASKER_TRANSITIONS,
    REQUEST_TIMEOUT,
    Answerer,
    AnswererInput,
    AnswererState,
    Asker,
    AskerInput,
    AskerState,
)
from agentmesh.protocols.dialback.wire import MAX_MESSAGE_BYTES, encode_request, encode_response
from agentmesh.types import Address
from agentmesh.wire.framing import encode_frame

LISTENING = (Address.parse("/ip4/0.0.0.0/tcp/5002"), Address.parse("/ip4/203.0.113.7/tcp/5003"))
REACHED = (Address.parse("/ip4/203.0.113.7/tcp/5002"),)
REQUEST = encode_frame(encode_request(LISTENING))
ANSWER = encode_frame(encode_response(REACHED))
GARBAGE = [
    (encode_frame(bytes(MAX_MESSAGE_BYTES + 1)), LimitExceededError),
    (encode_frame(b"\xff\xff"), RemoteProtocolError),
    (b"\x80\x00", RemoteProtocolError),
]


def test_every_cell_is_decided() -> None:
    assert set(ASKER_TRANSITIONS) == set(itertools.product(AskerState, AskerInput))
    assert set(ANSWERER_TRANSITIONS) == set(itertools.product(AnswererState, AnswererInput))


# ── the member ──


def asker_that_waits() -> Asker:
    asker = Asker()
    asker.send_request(LISTENING, 1.0)
    assert (asker.data_to_send(), asker.data_to_send()) == (REQUEST, b"")
    return asker


@pytest.mark.parametrize("cut", range(len(ANSWER) + 1))
def test_an_answer_is_read_however_it_is_cut(cut: int) -> None:
    asker = asker_that_waits()
    for part in (ANSWER[:cut], ANSWER[cut:] + b"more"):
        if part:
            asker.receive_data(part, 2.0)
    assert (asker.next_event(), asker.next_event(), asker.deadline) == (Answered(REACHED), None, math.inf)
    asker.receive_data(b"and more", 2.0)
    asker.receive_data(b"", 2.0)
    asker.handle_timeout(100.0)
    assert (asker.next_event(), asker.state) == (None, AskerState.FINISHED)


def test_a_member_asks_once() -> None:
    asker = asker_that_waits()
    with pytest.raises(LocalProtocolError, match="send_request while waiting"):
        asker.send_request(LISTENING, 1.0)
    asker.receive_data(ANSWER, 1.0)
    with pytest.raises(LocalProtocolError, match="send_request while finished"):
        asker.send_request(LISTENING, 1.0)


def test_a_member_waits_for_fifteen_seconds() -> None:
    asker = asker_that_waits()
    assert asker.deadline == 1.0 + ANSWER_TIMEOUT
    asker.handle_timeout(math.nextafter(1.0 + ANSWER_TIMEOUT, 0))
    assert asker.next_event() is None
    asker.handle_timeout(1.0 + ANSWER_TIMEOUT)
    assert (asker.next_event(), asker.state) == (TimedOut(), AskerState.FINISHED)


def test_a_router_that_says_nothing_has_left() -> None:
    for asker in (Asker(), asker_that_waits()):
        asker.receive_data(b"", 1.0)
        assert (asker.next_event(), asker.state) == (PeerLeft(), AskerState.FINISHED)


def test_a_router_that_is_first_breaks_the_protocol() -> None:
    asker = Asker()
    with pytest.raises(RemoteProtocolError, match="before the request"):
        asker.receive_data(ANSWER, 1.0)
    assert asker.state is AskerState.FINISHED


@pytest.mark.parametrize(
    ("data", "error"),
    [*GARBAGE, (encode_frame(encode_response([Address.parse("/ip4/203.0.113.7/tcp/22")])), RemoteProtocolError)],
)
def test_what_is_no_answer_to_this_is_the_routers_fault(data: bytes, error: type[RemoteProtocolError]) -> None:
    asker = asker_that_waits()
    with pytest.raises(error):
        asker.receive_data(data, 1.0)
    assert (asker.state, asker.next_event(), asker.deadline) == (AskerState.FINISHED, None, math.inf)


# ── the router ──


@pytest.mark.parametrize("cut", range(len(REQUEST) + 1))
def test_a_request_is_read_however_it_is_cut_and_answered_once(cut: int) -> None:
    answerer = Answerer(0.0)
    for part in (REQUEST[:cut], REQUEST[cut:] + b"more"):
        if part:
            answerer.receive_data(part, 1.0)
    assert (answerer.next_event(), answerer.next_event(), answerer.deadline) == (Asked(LISTENING), None, math.inf)
    answerer.receive_data(b"and more", 1.0)
    answerer.receive_data(b"", 1.0)
    answerer.handle_timeout(100.0)
    assert (answerer.next_event(), answerer.state) == (None, AnswererState.DIALLING)
    answerer.send_response(REACHED)
    assert (answerer.data_to_send(), answerer.data_to_send()) == (ANSWER, b"")
    answerer.receive_data(b"and more", 1.0)
    with pytest.raises(LocalProtocolError, match="send_response while finished"):
        answerer.send_response(REACHED)


def test_nothing_is_answered_before_it_is_asked() -> None:
    with pytest.raises(LocalProtocolError, match="send_response while awaiting"):
        Answerer(0.0).send_response(REACHED)


def test_a_router_waits_for_five_seconds() -> None:
    answerer = Answerer(7.0)
    assert answerer.deadline == 7.0 + REQUEST_TIMEOUT
    answerer.receive_data(REQUEST[:2], 8.0)
    answerer.handle_timeout(8.0)
    assert answerer.next_event() is None
    answerer.handle_timeout(7.0 + REQUEST_TIMEOUT)
    assert answerer.next_event() == TimedOut()


def test_a_member_that_says_nothing_has_left() -> None:
    answerer = Answerer(0.0)
    answerer.receive_data(b"", 0.0)
    assert answerer.next_event() == PeerLeft()


@pytest.mark.parametrize(("data", "error"), [*GARBAGE, (encode_frame(b""), RemoteProtocolError)])
def test_what_is_no_request_is_the_members_fault(data: bytes, error: type[RemoteProtocolError]) -> None:
    answerer = Answerer(0.0)
    with pytest.raises(error):
        answerer.receive_data(data, 0.0)
    assert (answerer.state, answerer.next_event(), answerer.deadline) == (AnswererState.FINISHED, None, math.inf)


class BothEnds(RuleBasedStateMachine):
    """A member and a router, and a wire that cuts and delays: what is asked is answered once, or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.asker, self.answerer = Asker(), Answerer(0.0)
        self.there, self.back = b"", b""
        self.asked: list[object] = []
        self.answers: list[object] = []

    @rule()
    def ask(self) -> None:
        if self.asker.state is not AskerState.READY:
            with pytest.raises(LocalProtocolError):
                self.asker.send_request(LISTENING, self.now)
            return
        self.asker.send_request(LISTENING, self.now)
        self.there += self.asker.data_to_send()

    @rule(size=st.integers(1, 60))
    def deliver(self, size: int) -> None:
        data, self.there = self.there[:size], self.there[size:]
        if data:
            self.answerer.receive_data(data, self.now)
        data, self.back = self.back[:size], self.back[size:]
        if data:
            self.asker.receive_data(data, self.now)
        self.hear()

    @rule(found=st.sampled_from([(), REACHED]))
    def answer(self, found: tuple[Address, ...]) -> None:
        if self.answerer.state is not AnswererState.DIALLING:
            with pytest.raises(LocalProtocolError):
                self.answerer.send_response(found)
            return
        self.answerer.send_response(found)
        self.back += self.answerer.data_to_send()

    @rule(seconds=st.floats(0, 5))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.asker.handle_timeout(self.now)
        self.answerer.handle_timeout(self.now)
        self.hear()

    def hear(self) -> None:
        while (event := self.answerer.next_event()) is not None:
            self.asked.append(event)
        while (answer := self.asker.next_event()) is not None:
            self.answers.append(answer)

    @invariant()
    def each_hears_at_most_once_and_what_the_other_said(self) -> None:
        assert self.asked in ([], [Asked(LISTENING)], [TimedOut()])
        assert self.answers in ([], [Answered(())], [Answered(REACHED)], [TimedOut()])
        assert (self.asker.state is AskerState.FINISHED) == bool(self.answers)


TestBothEnds = BothEnds.TestCase
