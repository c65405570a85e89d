"""hop and stop: every state and input is decided, and two honest machines agree whatever the wire does to the bytes."""

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentmesh.protocols.relay import dialer, listener
from agentmesh.protocols.relay.dialer import Dialer
from agentmesh.protocols.relay.events import (
    CircuitLimits,
    CircuitOpened,
    CircuitRequested,
    Offer,
    Refused,
    ReservationGranted,
    ReservationRequested,
    Status,
)
from agentmesh.protocols.relay.hop import HopDialer, HopListener
from agentmesh.protocols.relay.listener import Listener
from agentmesh.protocols.relay.stop import StopDialer, StopListener
from agentmesh.types import Address, PeerId

ALICE = PeerId.from_ed25519(b"a" * 32)
LIMITS = CircuitLimits(60.0, 4096)
OFFER = Offer(b"t" * 32, (Address.parse("/ip4/192.0.2.1/tcp/4001"),))
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
    @rule(what=st.sampled_from(["reserve", "connect", "offer"]), data_path=st.booleans())
    def ask(self, what: str, data_path: bool) -> None:
        if what == "offer":
            self.pair = self.stop
            offer = OFFER if data_path else None
            self.stop[0].send_offer(ALICE, LIMITS, 0.0, offer)
            self.asked = CircuitRequested(ALICE, LIMITS, offer=offer)
        elif what == "connect":
            self.hop[0].send_connect(ALICE, 0.0, data_path=data_path)
            self.asked = CircuitRequested(ALICE, data_path=data_path)
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
    @rule(
        refusal=st.none() | st.sampled_from([status for status in Status if status is not Status.OK]),
        data_path=st.booleans(),
    )
    def answer(self, refusal: Status | None, data_path: bool) -> None:
        if refusal is not None:
            self.pair[1].send_refusal(refusal)
            self.answered = Refused(refusal)
        elif isinstance(self.asked, ReservationRequested):
            self.hop[1].send_reservation(GRANTED)
            self.answered = GRANTED
        elif self.pair is self.hop:
            offer = OFFER if data_path else None
            self.hop[1].send_circuit(LIMITS, offer)
            self.answered = CircuitOpened(LIMITS, offer=offer)
        else:
            self.stop[1].send_circuit(data_path=data_path)
            self.answered = CircuitOpened(CircuitLimits(), data_path)
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
