import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import RemoteProtocolError
from agentmesh.protocols.ping.events import PingTimedOut, PongReceived
from agentmesh.protocols.ping.machine import PONG_TIMEOUT, Echo, Pinger
from agentmesh.protocols.ping.wire import PING_BYTES
from agentmesh.runtime.multistream import Proposer, Responder
from agentmesh.testing import Pair, Untimed

PAYLOAD = bytes(range(PING_BYTES))


class Recorder:
    """Notes what it is given, and when; says whatever it is told to."""

    deadline = math.inf

    def __init__(self, *says: bytes) -> None:
        self.says = list(says)
        self.heard: list[tuple[float, bytes]] = []

    def receive_data(self, data: bytes, now: float) -> None:
        self.heard.append((now, data))

    def handle_timeout(self, now: float) -> None:
        self.heard.append((now, b"timeout"))

    def data_to_send(self) -> bytes:
        return self.says.pop(0) if self.says else b""

    def next_event(self) -> None:
        return None


class Parrot(Recorder):
    def receive_data(self, data: bytes, now: float) -> None:
        self.says.append(data)


def test_a_ping_comes_back() -> None:
    pair = Pair(Pinger(), Echo(0.0), latency=0.1)
    pair.one.machine.send_ping(PAYLOAD, pair.now)
    pair.run()
    (pong,) = pair.one.events
    assert isinstance(pong, PongReceived)
    assert pong.rtt == pytest.approx(0.2)
    assert pair.other.events == []


@given(st.lists(st.integers(1, 40), max_size=5))
def test_however_the_wire_cuts(sizes: list[int]) -> None:
    pair = Pair(Pinger(), Echo(0.0))
    pair.one.machine.send_ping(PAYLOAD, pair.now)
    pair.run(sizes)
    assert pair.one.events == [PongReceived(0.0)]


def test_a_deadline_passes() -> None:
    pair = Pair(Pinger(), Echo(0.0), latency=100.0)
    pair.one.machine.send_ping(PAYLOAD, pair.now)
    pair.advance(PONG_TIMEOUT)
    assert isinstance(pair.one.events[0], PingTimedOut)


def test_the_end_comes_behind_the_bytes() -> None:
    one, other = Recorder(b"first"), Recorder()
    pair = Pair(one, other, latency=2.0)
    pair.advance(1.0)
    one.says.append(b"second")
    pair.close(pair.one)
    pair.run()
    assert other.heard == [(2.0, b"first"), (3.0, b"second"), (3.0, b"")]


def test_a_wire_may_be_cut_at_any_byte() -> None:
    other = Recorder()
    pair = Pair(Recorder(b"abcdef"), other)
    pair.close(pair.one)
    assert pair.deliver(pair.other, 4)
    assert pair.deliver(pair.other, 4)
    assert pair.deliver(pair.other)
    assert not pair.deliver(pair.other)
    assert [data for _, data in other.heard] == [b"abcd", b"ef", b""]


def test_what_has_arrived_is_joined() -> None:
    other = Recorder()
    pair = Pair(Recorder(b"ab", b"cd", b"ef"), other)
    pair.flush()
    pair.flush()
    assert pair.deliver(pair.other, 3)
    assert pair.deliver(pair.other)
    assert [data for _, data in other.heard] == [b"abc", b"def"]


def test_nothing_arrives_early() -> None:
    other = Recorder()
    pair = Pair(Recorder(b"x"), other, now=10.0, latency=1.0)
    assert not pair.deliver(pair.other)
    pair.advance(1.0)
    assert pair.deliver(pair.other)
    assert other.heard == [(11.0, b"x")]


def test_a_machine_without_a_deadline_is_not_told_the_time() -> None:
    one = Recorder()
    Pair(one, Recorder()).advance(1e9)
    assert one.heard == []


def test_endless_talk_is_found() -> None:
    with pytest.raises(AssertionError, match="still talk"):
        Pair(Parrot(b"x"), Parrot()).run()


def test_what_a_machine_raises_comes_out() -> None:
    pair = Pair(Pinger(), Recorder(b"nobody asked"))
    with pytest.raises(RemoteProtocolError):
        pair.run()


@given(st.lists(st.integers(1, 40), max_size=5))
def test_machines_without_time(sizes: list[int]) -> None:
    proposer, responder = Proposer(["/new", "/old"]), Responder(["/old"].__contains__)
    pair = Pair(
        Untimed(proposer.receive_data, proposer.data_to_send), Untimed(responder.receive_data, responder.data_to_send)
    )
    pair.run(sizes)
    assert pair.one.events[-1:] == pair.other.events[-1:] == ["/old"]
