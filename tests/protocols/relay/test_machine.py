"""hop and stop: every state and input is decided, and two honest machines agree whatever the wire does to the bytes."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentmesh.errors import LocalProtocolError, RemoteProtocolError
from agentmesh.protocols.relay import dialer, listener
from agentmesh.protocols.relay.dialer import ANSWER_TIMEOUT, Dialer
from agentmesh.protocols.relay.events import (
    CircuitLimits,
    CircuitOpened,
    CircuitRequested,
    PeerLeft,
    Refused,
    RequestBroken,
    ReservationGranted,
    ReservationRequested,
    Status,
    TimedOut,
)
from agentmesh.protocols.relay.hop import HopDialer, HopListener
from agentmesh.protocols.relay.listener import REQUEST_TIMEOUT, Listener
from agentmesh.protocols.relay.stop import StopDialer, StopListener
from agentmesh.protocols.relay.wire import (
    MAX_MESSAGE_BYTES,
    encode_hop_connect,
    encode_hop_status,
    encode_reserve,
    encode_stop_connect,
    encode_stop_status,
)
from agentmesh.types import Address, PeerId
from agentmesh.wire.framing import encode_frame

ALICE = PeerId.from_ed25519(b"a" * 32)
LIMITS = CircuitLimits(60.0, 4096)
GRANTED = ReservationGranted(5000.0, (Address.parse("/memory/1"),), LIMITS, b"voucher")


def test_every_cell_is_decided() -> None:
    assert set(listener.TRANSITIONS) == set(itertools.product(listener.State, listener.Input))
    assert set(dialer.TRANSITIONS) == set(itertools.product(dialer.State, dialer.Input))


class Exchanges(RuleBasedStateMachine):
    """A dialer and a listener over a wire that cuts and delays; both then send the bytes of a circuit."""

    def __init__(self) -> None:
        super().__init__()
        self.hop = HopDialer(), HopListener(0.0)
        self.stop = StopDialer(), StopListener(0.0)
        self.pair: tuple[Dialer, Listener] = self.hop
        self.there, self.back = b"", b""
        self.asked: object = None
        self.requests: list[object] = []
        self.answers: list[object] = []
        self.answered: object = None
        self.sent = [b"", b""]

    @precondition(lambda self: self.asked is None)
    @rule(what=st.sampled_from(["reserve", "connect", "offer"]))
    def ask(self, what: str) -> None:
        if what == "offer":
            self.pair = self.stop
            self.stop[0].send_offer(ALICE, LIMITS, 0.0)
            self.asked = CircuitRequested(ALICE, LIMITS)
        elif what == "connect":
            self.hop[0].send_connect(ALICE, 0.0)
            self.asked = CircuitRequested(ALICE)
        else:
            self.hop[0].send_reserve(0.0)
            self.asked = ReservationRequested()
        self.there += self.pair[0].data_to_send()

    @precondition(lambda self: isinstance(self.asked, CircuitRequested))
    @rule(data=st.binary(min_size=1, max_size=20))
    def dialer_talks_early(self, data: bytes) -> None:
        self.there += data
        self.sent[0] += data

    @precondition(lambda self: isinstance(self.answered, CircuitOpened))
    @rule(data=st.binary(min_size=1, max_size=20))
    def listener_talks(self, data: bytes) -> None:
        self.back += data
        self.sent[1] += data

    @rule(size=st.integers(1, 30))
    def deliver(self, size: int) -> None:
        data, self.there = self.there[:size], self.there[size:]
        if data:
            self.pair[1].receive_data(data, 1.0)
            self.requests += [event] if (event := self.pair[1].next_event()) else []

    @rule(size=st.integers(1, 30))
    def bring_back(self, size: int) -> None:
        data, self.back = self.back[:size], self.back[size:]
        if data:
            self.pair[0].receive_data(data, 2.0)
            self.answers += [event] if (event := self.pair[0].next_event()) else []

    @precondition(lambda self: bool(self.requests) and self.answered is None)
    @rule(refusal=st.none() | st.sampled_from([status for status in Status if status is not Status.OK]))
    def answer(self, refusal: Status | None) -> None:
        if refusal is not None:
            self.pair[1].send_refusal(refusal)
            self.answered = Refused(refusal)
        elif isinstance(self.asked, ReservationRequested):
            self.hop[1].send_reservation(GRANTED)
            self.answered = GRANTED
        elif self.pair is self.hop:
            self.hop[1].send_circuit(LIMITS)
            self.answered = CircuitOpened(LIMITS)
        else:
            self.stop[1].send_circuit()
            self.answered = CircuitOpened(CircuitLimits())
        self.back += self.pair[1].data_to_send()

    @invariant()
    def each_hears_what_the_other_said_and_nothing_else(self) -> None:
        assert self.requests in ([], [self.asked])
        assert self.answers in ([], [self.answered])

    def teardown(self) -> None:
        if self.asked is None:
            return
        self.deliver(10_000)
        assert self.requests == [self.asked]
        if self.answered is not None:
            self.bring_back(10_000)
            assert self.answers == [self.answered]
        if isinstance(self.answered, CircuitOpened):
            assert [self.pair[1].trailing(), self.pair[0].trailing()] == self.sent


TestExchanges = Exchanges.TestCase
TestExchanges.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)

LISTENERS = [HopListener, StopListener]
DIALERS = [HopDialer, StopDialer]


def asking(kind: type[Dialer]) -> Dialer:
    machine = kind()
    if isinstance(machine, HopDialer):
        machine.send_connect(ALICE, 100.0)
    elif isinstance(machine, StopDialer):
        machine.send_offer(ALICE, LIMITS, 100.0)
    return machine


def status_for(machine: Dialer | Listener, status: Status) -> bytes:
    return encode_frame(
        encode_hop_status(status, CircuitLimits())
        if isinstance(machine, HopDialer | HopListener)
        else encode_stop_status(status)
    )


# ── the side that answers ──


@pytest.mark.parametrize("kind", LISTENERS)
@pytest.mark.parametrize("data", [b"\x00", b"\x02\x08\x09", b"\x03\xff\xff\xff", b"\x80\x80\x01", b"\x80\x00"])
def test_garbage_is_answered_malformed(kind: type[Listener], data: bytes) -> None:
    machine = kind(0.0)
    machine.receive_data(data, 1.0)
    assert machine.next_event() == RequestBroken(Status.MALFORMED_MESSAGE)
    assert machine.data_to_send() == status_for(machine, Status.MALFORMED_MESSAGE)
    assert machine.deadline == math.inf
    machine.receive_data(b"more", 1.0)
    machine.receive_data(b"", 1.0)
    assert (machine.next_event(), machine.data_to_send()) == (None, b"")


@pytest.mark.parametrize("kind", LISTENERS)
def test_a_status_nobody_asked_for_is_answered_unexpected(kind: type[Listener]) -> None:
    machine = kind(0.0)
    machine.receive_data(status_for(machine, Status.OK), 1.0)
    assert machine.next_event() == RequestBroken(Status.UNEXPECTED_MESSAGE)
    assert machine.data_to_send() == status_for(machine, Status.UNEXPECTED_MESSAGE)


@pytest.mark.parametrize("kind", LISTENERS)
def test_a_long_message_is_refused_when_its_length_has_come(kind: type[Listener]) -> None:
    machine = kind(0.0)
    machine.receive_data(encode_frame(bytes(MAX_MESSAGE_BYTES + 1))[:2], 1.0)
    assert machine.next_event() == RequestBroken(Status.MALFORMED_MESSAGE)


@pytest.mark.parametrize("kind", LISTENERS)
@pytest.mark.parametrize("before", [b"", b"\x05"])
def test_a_peer_may_leave_without_a_request(kind: type[Listener], before: bytes) -> None:
    machine = kind(0.0)
    if before:
        machine.receive_data(before, 0.0)
    machine.receive_data(b"", 1.0)
    assert (machine.next_event(), machine.state) == (PeerLeft(), listener.State.FINISHED)


@pytest.mark.parametrize("kind", LISTENERS)
def test_a_request_is_due_in_time(kind: type[Listener]) -> None:
    machine = kind(0.0)
    machine.handle_timeout(REQUEST_TIMEOUT - 0.1)
    assert machine.next_event() is None
    machine.handle_timeout(REQUEST_TIMEOUT)
    machine.handle_timeout(REQUEST_TIMEOUT + 9)
    assert (machine.next_event(), machine.next_event()) == (TimedOut(), None)


def test_a_half_closed_request_is_still_answered() -> None:
    machine = HopListener(0.0)
    machine.receive_data(encode_frame(encode_hop_connect(ALICE)), 0.0)
    machine.receive_data(b"", 0.0)
    assert machine.next_event() == CircuitRequested(ALICE)
    machine.send_circuit(LIMITS)
    machine.receive_data(b"", 0.0)
    assert (machine.next_event(), machine.state) == (None, listener.State.CIRCUIT)


@pytest.mark.parametrize("kind", LISTENERS)
def test_there_is_nothing_to_answer_before_a_request(kind: type[Listener]) -> None:
    machine = kind(0.0)
    with pytest.raises(LocalProtocolError):
        machine.send_refusal(Status.NO_RESERVATION)
    assert machine.data_to_send() == b""


def test_the_answer_must_fit_the_request() -> None:
    reserving, connecting = HopListener(0.0), HopListener(0.0)
    reserving.receive_data(encode_frame(encode_reserve()), 0.0)
    connecting.receive_data(encode_frame(encode_hop_connect(ALICE)), 0.0)
    with pytest.raises(LocalProtocolError):
        reserving.send_circuit(LIMITS)
    with pytest.raises(LocalProtocolError):
        connecting.send_reservation(GRANTED)
    assert reserving.data_to_send() == connecting.data_to_send() == b""


# ── the side that asks ──


@pytest.mark.parametrize("kind", DIALERS)
@pytest.mark.parametrize("data", [b"\x00", b"\x02\x08\x09", b"\x80\x80\x01", b""])
def test_what_is_no_answer_ends_the_machine(kind: type[Dialer], data: bytes) -> None:
    machine = asking(kind)
    with pytest.raises(RemoteProtocolError):
        machine.receive_data(data, 101.0)
    assert (machine.state, machine.deadline) == (dialer.State.FINISHED, math.inf)
    machine.receive_data(b"", 102.0)
    with pytest.raises(RemoteProtocolError):
        machine.receive_data(b"x", 102.0)


@pytest.mark.parametrize(
    ("kind", "request_"),
    [(HopDialer, encode_reserve()), (StopDialer, encode_stop_connect(ALICE, LIMITS))],
)
def test_a_request_is_no_answer(kind: type[Dialer], request_: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        asking(kind).receive_data(encode_frame(request_), 101.0)


@pytest.mark.parametrize("kind", DIALERS)
def test_bytes_before_the_question_are_the_peers_fault(kind: type[Dialer]) -> None:
    for data in (b"x", b""):
        with pytest.raises(RemoteProtocolError):
            kind().receive_data(data, 0.0)


@pytest.mark.parametrize("kind", DIALERS)
def test_a_machine_asks_once(kind: type[Dialer]) -> None:
    machine = asking(kind)
    machine.data_to_send()
    with pytest.raises(LocalProtocolError):
        if isinstance(machine, HopDialer):
            machine.send_reserve(100.0)
        elif isinstance(machine, StopDialer):
            machine.send_offer(ALICE, LIMITS, 100.0)
    assert machine.data_to_send() == b""
    machine.receive_data(status_for(machine, Status.OK), 101.0)
    assert machine.next_event() == CircuitOpened(CircuitLimits())


def test_a_reservation_without_the_reservation_is_no_answer() -> None:
    machine = HopDialer()
    machine.send_reserve(0.0)
    with pytest.raises(RemoteProtocolError):
        machine.receive_data(status_for(machine, Status.OK), 1.0)


@pytest.mark.parametrize("kind", DIALERS)
def test_no_answer_in_time_is_said_once(kind: type[Dialer]) -> None:
    machine = asking(kind)
    machine.handle_timeout(100.0 + ANSWER_TIMEOUT - 0.1)
    assert machine.next_event() is None
    machine.handle_timeout(100.0 + ANSWER_TIMEOUT)
    machine.handle_timeout(1000.0)
    assert (machine.next_event(), machine.next_event()) == (TimedOut(), None)


@pytest.mark.parametrize("kind", DIALERS)
def test_a_circuits_bytes_and_end_are_not_the_machines(kind: type[Dialer]) -> None:
    machine = asking(kind)
    machine.receive_data(status_for(machine, Status.OK) + b"early", 101.0)
    machine.receive_data(b" bytes", 101.0)
    machine.receive_data(b"", 101.0)
    assert machine.next_event() == CircuitOpened(CircuitLimits())
    assert (machine.trailing(), machine.trailing()) == (b"early bytes", b"")


@pytest.mark.parametrize("kind", DIALERS)
def test_an_answer_nobody_knows_is_a_refusal(kind: type[Dialer]) -> None:
    machine = asking(kind)
    message = encode_hop_status if kind is HopDialer else None
    data = b"\x08\x02\x28\xab\x02" if message else b"\x08\x01\x20\xab\x02"
    machine.receive_data(encode_frame(data), 101.0)
    assert machine.next_event() == Refused(299)


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_no_bytes_do_more_than_end_a_machine(pieces: list[bytes]) -> None:
    for kind in DIALERS:
        machine = asking(kind)
        try:
            for piece in pieces:
                machine.receive_data(piece, 101.0)
        except RemoteProtocolError:
            assert machine.state is dialer.State.FINISHED
    for answering in LISTENERS:
        for piece in pieces:
            answering(0.0).receive_data(piece, 1.0)
