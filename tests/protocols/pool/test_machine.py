import itertools
import math
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentmesh.errors import LimitExceededError, LocalProtocolError, RemoteProtocolError
from agentmesh.protocols.pool import Ack, AgentSide, ConnEpoch, DrainReason, Hello, RouterSide, Stats
from agentmesh.protocols.pool.beat import HEARTBEAT_INTERVAL, LOST_INTERVALS
from agentmesh.protocols.pool.drains import TRANSITIONS as DRAIN_TRANSITIONS
from agentmesh.protocols.pool.drains import Leaving
from agentmesh.protocols.pool.events import (
    Drained,
    DrainExpired,
    DrainReceived,
    Event,
    HelloReceived,
    Joined,
    MetadataAcknowledged,
    MetadataReceived,
    PeerLeft,
    PeerSilent,
    Refused,
    RttMeasured,
    StatsReceived,
)
from agentmesh.protocols.pool.side import (
    DRAIN_TIMEOUT,
    GREETING_TIMEOUT,
    MAX_UNACKNOWLEDGED,
    MIN_SETTLE_TIME,
    TRANSITIONS,
    Input,
    Side,
    State,
)
from agentmesh.protocols.pool.values import MAX_STREAM_ID, Drain, Heartbeat, HeartbeatAck, Message, Phase
from agentmesh.protocols.pool.wire import MAX_MESSAGE_BYTES, encode_message
from agentmesh.wire.framing import encode_frame

HELLO = Hello("agent", "instance", "connection", epoch=ConnEpoch(1))
ACK = Ack("agent", ConnEpoch(7), connection_pool_supported=True, max_connections_per_agent=8)
REFUSAL = Ack("agent", registered=False, accepted=False, retry_after_ms=500)


def events_of(side: Side) -> list[Event]:
    return list(iter(side.next_event, None))


def exchange(agent: AgentSide, router: RouterSide, now: float) -> None:
    """Deliver everything, until both are silent."""
    while data := agent.data_to_send():
        router.receive_data(data, now)
    while data := router.data_to_send():
        agent.receive_data(data, now)
    if data := agent.data_to_send():
        router.receive_data(data, now)


def joined(now: float = 0.0) -> tuple[AgentSide, RouterSide]:
    agent, router = AgentSide(now), RouterSide(now)
    agent.send_hello(HELLO, now)
    exchange(agent, router, now)
    assert events_of(router) == [HelloReceived(HELLO)]
    router.send_ack(ACK, now)
    exchange(agent, router, now)
    assert events_of(agent) == [Joined(ACK)]
    return agent, router


def from_peer(message: Message) -> bytes:
    return encode_frame(encode_message(message))


def test_every_cell_is_decided() -> None:
    assert set(TRANSITIONS) == set(itertools.product(State, Input))
    assert set(DRAIN_TRANSITIONS) == set(itertools.product(Leaving, Phase))


def test_an_agent_joins_and_talks() -> None:
    agent, router = joined()
    agent.send_stats(Stats(active_streams=3))
    agent.send_metadata(HELLO)
    exchange(agent, router, 1.0)
    assert events_of(router) == [StatsReceived(Stats(active_streams=3)), MetadataReceived(HELLO)]
    router.send_ack(ACK, 1.0)
    exchange(agent, router, 1.0)
    assert events_of(agent) == [MetadataAcknowledged(ACK)]


def test_an_agent_is_refused() -> None:
    agent, router = AgentSide(0.0), RouterSide(0.0)
    agent.send_hello(HELLO, 0.0)
    exchange(agent, router, 0.0)
    router.send_ack(REFUSAL, 0.0)
    exchange(agent, router, 0.0)
    assert events_of(agent) == [Refused(REFUSAL)]
    assert (agent.is_finished, router.is_finished, agent.deadline) == (True, True, math.inf)
    with pytest.raises(LocalProtocolError):
        router.send_ack(ACK, 0.0)


@pytest.mark.parametrize("message", [HELLO, ACK, Heartbeat(1), Stats(), Drain(Phase.ANNOUNCED, DrainReason.REPLACED)])
def test_nobody_but_the_agent_speaks_first(message: Message) -> None:
    with pytest.raises(RemoteProtocolError):
        AgentSide(0.0).receive_data(from_peer(message), 0.0)
    if message is not HELLO:
        with pytest.raises(RemoteProtocolError):
            RouterSide(0.0).receive_data(from_peer(message), 0.0)


@pytest.mark.parametrize("message", [HELLO, ACK, REFUSAL, Stats()])
def test_in_the_pool_neither_says_what_is_the_others(message: Message) -> None:
    agent, router = joined()
    victim: Side = router if message in (HELLO, ACK, REFUSAL) else agent
    with pytest.raises(RemoteProtocolError):
        victim.receive_data(from_peer(message), 0.0)
    assert victim.is_finished
    victim.receive_data(from_peer(message), 0.0)  # not looked at


@pytest.mark.parametrize("bad", [ACK, REFUSAL])
def test_an_ack_that_nobody_waits_for(bad: Ack) -> None:
    agent, _ = joined()
    with pytest.raises(RemoteProtocolError):
        agent.receive_data(from_peer(bad), 0.0)


def test_our_own_mistakes_are_ours() -> None:
    agent, router = AgentSide(0.0), RouterSide(0.0)
    early: list[Callable[[], object]] = [
        lambda: agent.send_stats(Stats()),
        lambda: router.send_ack(ACK, 0.0),
        router.begin_open,
    ]
    for command in early:
        with pytest.raises(LocalProtocolError):
            command()
    assert not agent.accept_open(1)
    agent, router = joined()
    late: list[Callable[[], object]] = [lambda: agent.send_hello(HELLO, 0.0), lambda: router.send_ack(ACK, 0.0)]
    for command in late:
        with pytest.raises(LocalProtocolError):
            command()
    for _ in range(MAX_UNACKNOWLEDGED):
        agent.send_metadata(HELLO)
    with pytest.raises(LocalProtocolError):
        agent.send_metadata(HELLO)


@pytest.mark.parametrize(
    "data", [encode_frame(bytes(MAX_MESSAGE_BYTES + 1))[:10], encode_frame(b"{}{"), b"\x80\x00", encode_frame(b"[]")]
)
def test_what_is_no_message_ends_it(data: bytes) -> None:
    for side in joined():
        with pytest.raises(RemoteProtocolError):
            side.receive_data(data, 0.0)
        assert side.is_finished


def test_an_unknown_message_is_passed_over() -> None:
    agent, _ = joined()
    agent.receive_data(encode_frame(b'{"type": "trace"}'), 0.0)
    assert (events_of(agent), agent.state) == ([], State.OPEN)


def test_the_hello_and_the_ack_have_ten_seconds() -> None:
    agent, router = AgentSide(0.0), RouterSide(0.0)
    agent.send_hello(HELLO, 0.0)
    for side in (agent, router):
        assert side.deadline == GREETING_TIMEOUT
        side.handle_timeout(GREETING_TIMEOUT - 0.1)
        assert events_of(side) == []
        side.handle_timeout(GREETING_TIMEOUT)
        assert events_of(side) == [PeerSilent()]
        side.handle_timeout(100.0)
        assert (events_of(side), side.deadline) == ([], math.inf)


def test_a_router_takes_its_time_to_register() -> None:
    router = RouterSide(0.0)
    router.receive_data(from_peer(HELLO), 9.0)
    router.handle_timeout(100.0)
    router.send_ack(ACK, 100.0)
    assert router.state is State.OPEN
    router.handle_timeout(100.0)
    assert router.state is State.OPEN


def test_heartbeats_measure_and_a_silent_peer_is_lost() -> None:
    agent, router = joined()
    agent.handle_timeout(0.0)
    asked = agent.data_to_send()
    router.receive_data(asked, 0.1)
    agent.receive_data(router.data_to_send(), 0.4)
    assert events_of(agent) == [RttMeasured(0.4, 0.4)]
    assert agent.deadline == HEARTBEAT_INTERVAL
    agent.handle_timeout(10.0)
    router.receive_data(agent.data_to_send(), 10.0)
    agent.receive_data(router.data_to_send(), 10.8)
    [event] = events_of(agent)
    assert isinstance(event, RttMeasured)
    assert event.smoothed == pytest.approx(0.4 + 0.4 / 8)
    lost_at = 10.8 + LOST_INTERVALS * HEARTBEAT_INTERVAL
    for now in (20.0, 30.0, 40.0, lost_at - 0.1):
        agent.handle_timeout(now)
    assert events_of(agent) == []
    agent.handle_timeout(lost_at)
    assert (events_of(agent), agent.is_finished) == ([PeerSilent()], True)


def test_a_late_answer_is_no_answer_and_one_to_nothing_a_lie() -> None:
    agent, _ = joined()
    for n in range(6):
        agent.handle_timeout(n * HEARTBEAT_INTERVAL)
        agent.receive_data(encode_frame(b'{"type": "noise"}'), n * HEARTBEAT_INTERVAL)
    agent.receive_data(from_peer(HeartbeatAck(1)), 60.0)  # forgotten: four are waited for
    assert events_of(agent) == []
    for seq in (0, 7):
        agent, _ = joined()
        agent.handle_timeout(0.0)
        with pytest.raises(RemoteProtocolError, match="not sent"):
            agent.receive_data(from_peer(HeartbeatAck(seq)), 0.0)


def test_a_peer_that_asks_and_does_not_read_is_cut_off() -> None:
    agent, _ = joined()
    with pytest.raises(LimitExceededError):
        for seq in range(1, 10_000):
            agent.receive_data(from_peer(Heartbeat(seq)), 0.0)
    assert agent.is_finished


def test_an_agent_leaves_in_two_phases() -> None:
    agent, router = joined()
    for _ in range(3):
        assert agent.accept_open(router.begin_open())
    agent.send_drain(DrainReason.SCALE_DOWN, 5.0)
    exchange(agent, router, 5.0)
    announced = Drain(Phase.ANNOUNCED, DrainReason.SCALE_DOWN, 60_000, 0, MAX_STREAM_ID)
    assert events_of(router) == [DrainReceived(announced)]
    with pytest.raises(LocalProtocolError):
        router.begin_open()
    with pytest.raises(LocalProtocolError, match="leaving already"):
        agent.send_drain(DrainReason.SCALE_DOWN, 5.0)
    agent.handle_timeout(5.0 + MIN_SETTLE_TIME)
    exchange(agent, router, 5.0 + MIN_SETTLE_TIME)
    settled = Drain(Phase.SETTLED, DrainReason.SCALE_DOWN, 59_000, 0, 3)
    assert [event for event in events_of(router) if isinstance(event, DrainReceived)] == [DrainReceived(settled)]
    assert not agent.accept_open(4)
    for stream_id in (1, 2, 3):
        assert Drained() not in events_of(agent)
        agent.end_open(stream_id)
    assert events_of(agent) == [Drained()]


def test_what_was_under_way_comes_back_untouched() -> None:
    agent, router = joined()
    first, second = router.begin_open(), router.begin_open()
    assert agent.accept_open(first)
    agent.send_drain(DrainReason.AGENT_SHUTDOWN, 0.0)
    agent.handle_timeout(1.0)
    exchange(agent, router, 1.0)
    returned = [event.returned for event in events_of(router) if isinstance(event, DrainReceived)]
    assert returned == [frozenset(), {second}]
    assert router.open_streams == {first}
    assert not agent.accept_open(second)


def test_a_far_peer_is_given_two_round_trips() -> None:
    agent, _ = joined()
    agent.handle_timeout(0.0)
    agent.receive_data(from_peer(HeartbeatAck(1)), 2.0)
    agent.send_drain(DrainReason.SCALE_DOWN, 2.0)
    agent.data_to_send()
    agent.handle_timeout(5.9)
    assert not agent.ours.is_settled
    agent.handle_timeout(6.0)
    assert agent.ours.is_settled


def test_a_router_leaves_and_its_opens_still_arrive() -> None:
    agent, router = joined()
    stream_id = router.begin_open()
    router.send_drain(DrainReason.SERVER_SHUTDOWN, 0.0, timeout=30.0, retry_after=2.5)
    router.handle_timeout(1.0)
    exchange(agent, router, 1.0)
    drains = [event.drain for event in events_of(agent) if isinstance(event, DrainReceived)]
    assert [(drain.phase, drain.retry_after_ms, drain.last_stream_id) for drain in drains] == [
        (Phase.ANNOUNCED, 2500, MAX_STREAM_ID),
        (Phase.SETTLED, 2500, stream_id),
    ]
    assert agent.accept_open(stream_id)
    assert not agent.accept_open(stream_id)
    assert not agent.accept_open(stream_id + 1)


def test_streams_out_of_time_are_said_once() -> None:
    agent, router = joined()
    assert agent.accept_open(router.begin_open())
    agent.send_drain(DrainReason.SCALE_DOWN, 0.0)
    exchange(agent, router, 0.0)
    events_of(router)
    for side in (agent, router):
        side.beat.heard(DRAIN_TIMEOUT)
        side.handle_timeout(DRAIN_TIMEOUT)
        side.handle_timeout(DRAIN_TIMEOUT + 0.1)
        assert events_of(side).count(DrainExpired(frozenset({1}))) == 1


@pytest.mark.parametrize("phase", [Phase.ANNOUNCED, Phase.SETTLED])
def test_a_drain_is_said_once(phase: Phase) -> None:
    agent, _ = joined()
    agent.receive_data(from_peer(Drain(phase, DrainReason.REPLACED)), 0.0)
    with pytest.raises(RemoteProtocolError, match="before"):
        agent.receive_data(from_peer(Drain(phase, DrainReason.REPLACED)), 0.0)


def test_the_end_of_the_stream_is_the_end() -> None:
    for side in joined():
        side.receive_data(b"", 0.0)
        assert (events_of(side), side.is_finished) == ([PeerLeft()], True)
        side.end_open(1)


class TwoSides(RuleBasedStateMachine):
    """Two honest sides and a wire that delays: neither accuses the other, and no open is both served and returned."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.agent, self.router = joined()
        self.to_agent, self.to_router = bytearray(), bytearray()
        self.under_way: list[int] = []
        self.served: set[int] = set()
        self.refused: set[int] = set()
        self.returned: set[int] = set()
        self.drained: list[object] = []

    @precondition(lambda self: not self.router.is_draining)
    @rule()
    def open(self) -> None:
        self.under_way.append(self.router.begin_open())

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        stream_id = data.draw(st.sampled_from(self.under_way))
        self.under_way.remove(stream_id)
        (self.served if self.agent.accept_open(stream_id) else self.refused).add(stream_id)

    @precondition(lambda self: self.served)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        stream_id = data.draw(st.sampled_from(sorted(self.served)))
        self.agent.end_open(stream_id)
        self.router.end_open(stream_id)

    @rule(agent_leaves=st.booleans())
    def leave(self, agent_leaves: bool) -> None:
        side: Side = self.agent if agent_leaves else self.router
        if not side.ours.has_begun:
            side.send_drain(DrainReason.SCALE_DOWN, self.now, timeout=20.0)

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.deliver()
        self.agent.handle_timeout(self.now)
        self.router.handle_timeout(self.now)

    @rule(size=st.integers(1, 60))
    def deliver(self, size: int = 1 << 20) -> None:
        self.to_router += self.agent.data_to_send()
        self.to_agent += self.router.data_to_send()
        for side, wire in ((self.router, self.to_router), (self.agent, self.to_agent)):
            data = bytes(wire[:size])
            del wire[:size]
            if data:
                side.receive_data(data, self.now)
            for event in events_of(side):
                if isinstance(event, DrainReceived):
                    self.returned |= event.returned
                if isinstance(event, Drained):
                    self.drained.append(side)

    @invariant()
    def an_open_is_served_or_comes_back(self) -> None:
        assert not self.returned & self.served
        last: int = self.agent.last_stream_id
        assert all(stream_id > last for stream_id in self.refused)
        assert len(self.drained) == len(set(map(id, self.drained)))
        assert State.OPEN is self.agent.state is self.router.state


TestTwoSides = TwoSides.TestCase
TestTwoSides.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
