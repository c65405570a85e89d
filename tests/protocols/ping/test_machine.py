import itertools
import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agentmesh.errors import LocalProtocolError, RemoteProtocolError
from agentmesh.protocols.ping.events import PeerFinished, PeerIdled, PingTimedOut, PongReceived
from agentmesh.protocols.ping.machine import (
    ECHO_TRANSITIONS,
    IDLE_TIMEOUT,
    PINGER_TRANSITIONS,
    PONG_TIMEOUT,
    Echo,
    EchoInput,
    EchoState,
    Pinger,
    PingerInput,
    PingerState,
)
from agentmesh.protocols.ping.wire import PING_BYTES

PAYLOAD = bytes(range(PING_BYTES))


def test_every_cell_is_decided() -> None:
    assert set(PINGER_TRANSITIONS) == set(itertools.product(PingerState, PingerInput))
    assert set(ECHO_TRANSITIONS) == set(itertools.product(EchoState, EchoInput))


class PingsOverAWire(RuleBasedStateMachine):
    """One echo, pinger after pinger, and a wire that cuts and delays as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.echo = Echo(self.now)
        self.pinger = Pinger()
        self.there, self.back = b"", b""
        self.asked_at: float | None = None

    @rule(payload=st.binary(min_size=PING_BYTES, max_size=PING_BYTES))
    def ask(self, payload: bytes) -> None:
        if self.asked_at is not None:
            with pytest.raises(LocalProtocolError):
                self.pinger.send_ping(payload, self.now)
            return
        self.pinger = Pinger()
        self.pinger.send_ping(payload, self.now)
        self.there += self.pinger.data_to_send()
        self.asked_at = self.now

    @rule(size=st.integers(1, 40))
    def deliver(self, size: int) -> None:
        data, self.there = self.there[:size], self.there[size:]
        if data and self.echo.state is EchoState.LISTENING:
            self.echo.receive_data(data, self.now)
            self.back += self.echo.data_to_send()

    @rule(size=st.integers(1, 40))
    def return_some(self, size: int) -> None:
        data, self.back = self.back[:size], self.back[size:]
        if not data or self.asked_at is None:
            return
        self.pinger.receive_data(data, self.now)
        if event := self.pinger.next_event():
            assert event == PongReceived(self.now - self.asked_at)
            self.asked_at = None

    @rule(seconds=st.floats(0, 1))
    def wait(self, seconds: float) -> None:
        self.now = min(self.now + seconds, PONG_TIMEOUT - 0.01)
        self.echo.handle_timeout(self.now)
        self.pinger.handle_timeout(self.now)
        assert self.echo.next_event() is None
        assert self.pinger.next_event() is None

    @invariant()
    def waiting_means_waiting(self) -> None:
        assert (self.asked_at is not None) == (self.pinger.state is PingerState.WAITING)


TestPingsOverAWire = PingsOverAWire.TestCase
TestPingsOverAWire.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def waiting() -> Pinger:
    pinger = Pinger()
    pinger.send_ping(PAYLOAD, 100.0)
    return pinger


def test_no_pong_is_said_once() -> None:
    pinger = waiting()
    pinger.handle_timeout(100.0 + PONG_TIMEOUT - 0.001)
    assert pinger.next_event() is None
    pinger.handle_timeout(100.0 + PONG_TIMEOUT)
    pinger.handle_timeout(1000.0)
    assert (pinger.next_event(), pinger.next_event()) == (PingTimedOut(), None)
    assert pinger.deadline == math.inf


@pytest.mark.parametrize("answer", [b"\xff", PAYLOAD + b"\x00", PAYLOAD[:31] + b"\x00", b""])
def test_another_answer_breaks_the_protocol(answer: bytes) -> None:
    pinger = waiting()
    with pytest.raises(RemoteProtocolError):
        pinger.receive_data(answer, 101.0)
    assert pinger.state is PingerState.FINISHED
    assert pinger.deadline == math.inf


def test_bytes_nobody_asked_for_break_the_protocol() -> None:
    with pytest.raises(RemoteProtocolError):
        Pinger().receive_data(b"x", 0.0)
    answered = waiting()
    answered.receive_data(PAYLOAD, 101.0)
    with pytest.raises(RemoteProtocolError):
        answered.receive_data(b"x", 102.0)


def test_the_end_of_an_answered_stream_is_nothing_new() -> None:
    pinger = waiting()
    pinger.receive_data(PAYLOAD, 101.5)
    assert pinger.next_event() == PongReceived(1.5)
    pinger.receive_data(b"", 102.0)
    assert pinger.next_event() is None


@pytest.mark.parametrize("size", [0, PING_BYTES - 1, PING_BYTES + 1])
def test_a_ping_is_32_bytes(size: int) -> None:
    pinger = Pinger()
    with pytest.raises(LocalProtocolError):
        pinger.send_ping(bytes(size), 0.0)
    assert pinger.state is PingerState.READY


def test_an_echo_answers_many_pings_at_once_and_ends_with_the_peer() -> None:
    echo = Echo(0.0)
    echo.receive_data(PAYLOAD * 3, 1.0)
    assert echo.data_to_send() == PAYLOAD * 3
    echo.receive_data(b"", 2.0)
    assert (echo.next_event(), echo.next_event()) == (PeerFinished(), None)
    assert echo.deadline == math.inf
    with pytest.raises(RemoteProtocolError):
        echo.receive_data(b"x", 3.0)


def test_an_echo_refuses_half_a_ping() -> None:
    echo = Echo(0.0)
    echo.receive_data(PAYLOAD[:5], 1.0)
    with pytest.raises(RemoteProtocolError):
        echo.receive_data(b"", 2.0)


def test_an_echo_waits_a_minute_from_the_last_byte() -> None:
    echo = Echo(0.0)
    echo.receive_data(b"x", 10.0)
    echo.handle_timeout(IDLE_TIMEOUT)
    assert echo.next_event() is None
    echo.handle_timeout(10.0 + IDLE_TIMEOUT)
    assert echo.next_event() == PeerIdled()
