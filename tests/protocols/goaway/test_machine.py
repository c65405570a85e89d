import itertools
import math

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agentmesh.errors import LimitExceededError, LocalProtocolError, RemoteProtocolError
from agentmesh.protocols.goaway import MAX_MESSAGE_BYTES, GoAway, Reason
from agentmesh.protocols.goaway.events import Acknowledged, GoAwayReceived, PeerLeft, TimedOut
from agentmesh.protocols.goaway.machine import (
    GOAWAY_TIMEOUT,
    LISTENER_TRANSITIONS,
    SENDER_TRANSITIONS,
    Listener,
    ListenerInput,
    ListenerState,
    Sender,
    SenderInput,
    SenderState,
)
from agentmesh.protocols.goaway.wire import encode_goaway
from agentmesh.wire.framing import encode_frame

GOAWAY = GoAway(Reason.DRAINING, 30.0)
FRAME = encode_frame(encode_goaway(GOAWAY))


def test_every_cell_is_decided() -> None:
    assert set(SENDER_TRANSITIONS) == set(itertools.product(SenderState, SenderInput))
    assert set(LISTENER_TRANSITIONS) == set(itertools.product(ListenerState, ListenerInput))


def sender_that_waits() -> Sender:
    sender = Sender()
    sender.send_goaway(GOAWAY, 0.0)
    assert (sender.data_to_send(), sender.data_to_send()) == (FRAME, b"")
    return sender


def finished_sender() -> Sender:
    sender = sender_that_waits()
    sender.receive_data(b"", 1.0)
    assert (sender.next_event(), sender.next_event(), sender.deadline) == (Acknowledged(), None, math.inf)
    return sender


def test_the_sender_says_it_once() -> None:
    for sender in (sender_that_waits(), finished_sender()):
        with pytest.raises(LocalProtocolError, match="send_goaway while"):
            sender.send_goaway(GOAWAY, 0.0)


def test_the_sender_waits_five_seconds() -> None:
    sender = sender_that_waits()
    assert sender.deadline == GOAWAY_TIMEOUT
    sender.handle_timeout(math.nextafter(GOAWAY_TIMEOUT, 0))
    assert sender.next_event() is None
    sender.handle_timeout(GOAWAY_TIMEOUT)
    assert (sender.next_event(), sender.state) == (TimedOut(), SenderState.FINISHED)


def test_a_member_has_nothing_to_say() -> None:
    sender = sender_that_waits()
    with pytest.raises(RemoteProtocolError, match="data while waiting"):
        sender.receive_data(b"why?", 0.0)
    assert sender.state is SenderState.FINISHED
    sender.receive_data(b"hello?", 0.0)
    sender.receive_data(b"", 0.0)
    assert sender.next_event() is None


@pytest.mark.parametrize("data", [b"", b"x"])
def test_a_member_that_is_first_breaks_the_protocol(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        Sender().receive_data(data, 0.0)


@pytest.mark.parametrize("cut", range(len(FRAME) + 1))
def test_the_listener_reads_it_however_it_is_cut(cut: int) -> None:
    listener = Listener(0.0)
    for part in (FRAME[:cut], FRAME[cut:] + b"more"):
        if part:
            listener.receive_data(part, 1.0)
    assert (listener.next_event(), listener.next_event(), listener.data_to_send()) == (
        GoAwayReceived(GOAWAY),
        None,
        b"",
    )
    listener.receive_data(b"and more", 1.0)
    listener.receive_data(b"", 1.0)
    listener.handle_timeout(100.0)
    assert (listener.next_event(), listener.state) == (None, ListenerState.FINISHED)


def test_the_listener_waits_five_seconds() -> None:
    listener = Listener(7.0)
    assert listener.deadline == 7.0 + GOAWAY_TIMEOUT
    listener.receive_data(FRAME[:2], 8.0)
    listener.handle_timeout(8.0)
    assert listener.next_event() is None
    listener.handle_timeout(7.0 + GOAWAY_TIMEOUT)
    assert listener.next_event() == TimedOut()


def test_a_router_that_says_nothing_has_left() -> None:
    listener = Listener(0.0)
    listener.receive_data(b"", 0.0)
    assert listener.next_event() == PeerLeft()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (encode_frame(bytes(MAX_MESSAGE_BYTES + 1)), LimitExceededError),
        (encode_frame(b"\xff\xff"), RemoteProtocolError),
        (b"\x80\x00", RemoteProtocolError),
    ],
)
def test_what_is_no_message_is_the_routers_fault(data: bytes, error: type[RemoteProtocolError]) -> None:
    listener = Listener(0.0)
    with pytest.raises(error):
        listener.receive_data(data, 0.0)
    assert (listener.state, listener.next_event(), listener.deadline) == (ListenerState.FINISHED, None, math.inf)


class BothEnds(RuleBasedStateMachine):
    """A router and a member, and a wire that cuts and delays: the one is told what the other says, at most once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.sender, self.listener = Sender(), Listener(0.0)
        self.wire, self.ended = b"", False
        self.said: GoAway | None = None
        self.heard: list[object] = []

    @rule(goaway=st.builds(GoAway, st.sampled_from(Reason), st.sampled_from([0.0, 30.0])))
    def say(self, goaway: GoAway) -> None:
        if self.said is not None:
            with pytest.raises(LocalProtocolError):
                self.sender.send_goaway(goaway, self.now)
            return
        self.said = goaway
        self.sender.send_goaway(goaway, self.now)
        self.wire = self.sender.data_to_send()

    @rule(size=st.integers(1, 20))
    def deliver(self, size: int) -> None:
        data, self.wire = self.wire[:size], self.wire[size:]
        if data:
            self.listener.receive_data(data, self.now)
        self.hear()

    @rule(seconds=st.floats(0, 3))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.sender.handle_timeout(self.now)
        self.listener.handle_timeout(self.now)
        self.hear()

    def hear(self) -> None:
        while (event := self.listener.next_event()) is not None:
            self.heard.append(event)
            if isinstance(event, GoAwayReceived) and self.sender.state is SenderState.WAITING:
                self.sender.receive_data(b"", self.now)
                assert self.sender.next_event() == Acknowledged()

    @invariant()
    def it_is_heard_at_most_once_and_as_it_was_said(self) -> None:
        assert len(self.heard) <= 1
        assert all(event in (GoAwayReceived(self.said), TimedOut()) for event in self.heard if self.said)
        assert (self.listener.state is ListenerState.FINISHED) == bool(self.heard)


TestBothEnds = BothEnds.TestCase
