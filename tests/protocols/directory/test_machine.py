"""One request and one answer: every cell of the tables, and two honest peers over a wire that cuts and delays."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentmesh.errors import LimitExceededError, LocalProtocolError, RemoteProtocolError
from agentmesh.protocols.directory.events import (
    Announcement,
    Answer,
    Answered,
    FindPeer,
    FindProviders,
    Found,
    PeerLeft,
    Provide,
    Request,
    Requested,
    Status,
    TimedOut,
)
from agentmesh.protocols.directory.keys import peer_key, service_key
from agentmesh.protocols.directory.machine import (
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
from agentmesh.protocols.directory.wire import MAX_ANSWER_BYTES, MAX_REQUEST_BYTES, encode_answer, encode_request
from agentmesh.types import Address, PeerId
from agentmesh.wire.framing import encode_frame, encode_varint

ALICE, BOB = PeerId.from_ed25519(b"a" * 32), PeerId.from_ed25519(b"b" * 32)
HERE = Address.parse(f"/memory/1/p2p/{ALICE}")
REQUESTS: list[Request] = [
    Provide(Announcement(peer_key(ALICE), (HERE,), 7)),
    Provide(Announcement(peer_key(BOB), (), 2**64 - 1, 0.0), BOB),
    FindProviders(service_key("mcp"), 3),
    FindPeer(BOB),
]
ANSWERS = [
    Answer(placed=3),
    Answer(found=(Found(ALICE, (HERE,), 7, 60.0),)),
    Answer(Status.OUTDATED, sequence=9),
    Answer(Status.LIMITED, retry_after=1.0),
    Answer(Status.UNAVAILABLE),
]
QUESTION, REPLY = encode_frame(encode_request(REQUESTS[0])), encode_frame(encode_answer(ANSWERS[1]))


def test_every_cell_is_decided() -> None:
    assert set(ANSWERER_TRANSITIONS) == set(itertools.product(AnswererState, AnswererInput))
    assert set(ASKER_TRANSITIONS) == set(itertools.product(AskerState, AskerInput))


class Exchanges(RuleBasedStateMachine):
    """Whatever the wire does to the bytes, the request arrives once and so does its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.asker, self.answerer = Asker(), Answerer(ALICE, 0.0)
        self.there, self.back = b"", b""
        self.asked: Request | None = None
        self.answered: Answer | None = None
        self.requests: list[object] = []
        self.answers: list[object] = []

    @precondition(lambda self: self.asked is None)
    @rule(request=st.sampled_from(REQUESTS))
    def ask(self, request: Request) -> None:
        self.asked = request
        self.asker.send_request(request, 0.0)
        self.there += self.asker.data_to_send()

    @rule(size=st.integers(1, 50))
    def deliver(self, size: int) -> None:
        data, self.there = self.there[:size], self.there[size:]
        if data:
            self.answerer.receive_data(data, 1.0)
            self.requests += [event] if (event := self.answerer.next_event()) else []

    @precondition(lambda self: bool(self.requests) and self.answered is None)
    @rule(answer=st.sampled_from(ANSWERS))
    def answer(self, answer: Answer) -> None:
        self.answered = answer
        self.answerer.send_answer(answer)
        self.back += self.answerer.data_to_send()

    @rule(size=st.integers(1, 50))
    def bring_back(self, size: int) -> None:
        data, self.back = self.back[:size], self.back[size:]
        if data:
            self.asker.receive_data(data, 2.0)
            self.answers += [event] if (event := self.asker.next_event()) else []

    @invariant()
    def each_hears_what_the_other_said_once(self) -> None:
        assert self.requests in ([], [Requested(self.asked)] if self.asked else [])
        assert self.answers in ([], [Answered(self.answered)] if self.answered else [])

    def teardown(self) -> None:
        self.deliver(10_000)
        self.bring_back(10_000)
        assert bool(self.requests) == (self.asked is not None)
        assert bool(self.answers) == (self.answered is not None)


TestExchanges = Exchanges.TestCase
TestExchanges.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def asking() -> Asker:
    asker = Asker()
    asker.send_request(REQUESTS[0], 100.0)
    return asker


def asked() -> Answerer:
    answerer = Answerer(ALICE, 0.0)
    answerer.receive_data(QUESTION, 1.0)
    return answerer


@pytest.mark.parametrize("data", [b"\x00", b"\x02\xff\xff", b"\x80\x00", encode_varint(MAX_REQUEST_BYTES + 1)])
def test_what_is_no_request_ends_the_answerer(data: bytes) -> None:
    answerer = Answerer(ALICE, 0.0)
    with pytest.raises(RemoteProtocolError):
        answerer.receive_data(data, 1.0)
    answerer.receive_data(b"more", 1.0)
    answerer.receive_data(b"", 1.0)
    answerer.handle_timeout(1e9)
    assert (answerer.state, answerer.deadline, answerer.next_event()) == (AnswererState.FINISHED, math.inf, None)


def test_a_record_of_ten_mebibytes_is_refused_by_its_length() -> None:
    with pytest.raises(LimitExceededError):
        Answerer(ALICE, 0.0).receive_data(encode_varint(10 * 1024 * 1024), 1.0)


def test_the_provider_of_a_request_is_who_asks() -> None:
    """The same bytes of somebody else announce addresses that are not his."""
    with pytest.raises(RemoteProtocolError):
        Answerer(BOB, 0.0).receive_data(QUESTION, 1.0)


def test_an_asker_may_leave() -> None:
    answerer = Answerer(ALICE, 0.0)
    answerer.receive_data(QUESTION[:-1], 1.0)
    answerer.receive_data(b"", 1.0)
    assert (answerer.next_event(), answerer.state) == (PeerLeft(), AnswererState.FINISHED)


def test_a_request_is_due_in_time() -> None:
    answerer = Answerer(ALICE, 50.0)
    answerer.handle_timeout(50.0 + REQUEST_TIMEOUT - 0.1)
    assert answerer.next_event() is None
    answerer.handle_timeout(50.0 + REQUEST_TIMEOUT)
    answerer.handle_timeout(90.0)
    assert (answerer.next_event(), answerer.next_event()) == (TimedOut(), None)


def test_while_it_is_answered_the_clock_stands_and_the_rest_means_nothing() -> None:
    answerer = asked()
    answerer.receive_data(b"rest", 2.0)
    answerer.receive_data(b"", 2.0)
    answerer.handle_timeout(1e9)
    assert (answerer.next_event(), answerer.next_event()) == (Requested(REQUESTS[0]), None)
    answerer.send_answer(ANSWERS[1])
    assert answerer.data_to_send() == REPLY


def test_an_answer_needs_a_request_and_is_given_once() -> None:
    for answerer in (Answerer(ALICE, 0.0), asked()):
        if answerer.state is AnswererState.ANSWERING:
            answerer.send_answer(ANSWERS[0])
            answerer.data_to_send()
        with pytest.raises(LocalProtocolError):
            answerer.send_answer(ANSWERS[0])
        assert answerer.data_to_send() == b""


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x02\xff\xff", b"\x80\x00", encode_varint(MAX_ANSWER_BYTES + 1)])
def test_what_is_no_answer_ends_the_asker(data: bytes) -> None:
    asker = asking()
    with pytest.raises(RemoteProtocolError):
        asker.receive_data(data, 101.0)
    assert (asker.state, asker.deadline) == (AskerState.FINISHED, math.inf)
    asker.receive_data(b"late", 102.0)
    asker.receive_data(b"", 102.0)
    asker.handle_timeout(1e9)
    assert asker.next_event() is None


def test_bytes_before_the_request_are_the_peers_fault() -> None:
    for data in (b"x", b""):
        with pytest.raises(RemoteProtocolError):
            Asker().receive_data(data, 0.0)


def test_an_answer_is_due_in_time() -> None:
    asker = asking()
    asker.handle_timeout(100.0 + ANSWER_TIMEOUT - 0.1)
    assert asker.next_event() is None
    asker.handle_timeout(100.0 + ANSWER_TIMEOUT)
    asker.handle_timeout(200.0)
    assert (asker.next_event(), asker.next_event()) == (TimedOut(), None)


def test_an_asker_asks_once() -> None:
    asker = asking()
    with pytest.raises(LocalProtocolError):
        asker.send_request(REQUESTS[0], 100.0)
    assert asker.state is AskerState.AWAITING


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_no_bytes_do_more_than_end_a_machine(pieces: list[bytes]) -> None:
    for machine in (asking(), Answerer(ALICE, 0.0)):
        try:
            for piece in pieces:
                machine.receive_data(piece, 1.0)
        except RemoteProtocolError:
            assert machine.state in (AskerState.FINISHED, AnswererState.FINISHED)
