"""The controller in whatever happens: promises that hold for every history."""

import itertools
from functools import partial

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.agent.controller import Controller
from agentmesh.pool.agent.dials import Failure
from agentmesh.pool.agent.orders import Close, CloseReason, Dial, Drain, Order
from agentmesh.pool.agent.scaling import MAX_RECORDS, Decision, Report
from agentmesh.protocols.pool import Ack, DrainReason
from tests.pool.agent.driving import POOL, World

CONFIG = ConnectionsConfig(min=2, max=5)
ACKS = st.builds(
    Ack,
    st.just("agent"),
    connection_pool_supported=st.sampled_from([True, True, True, False]),
    max_connections_per_agent=st.sampled_from([0, 1, 3, 64]),
    server_node_id=st.sampled_from(["", "n1", "n2"]),
)
REPORTS = st.builds(
    Report,
    active_streams=st.sampled_from([0, 1, 3, 16, 40]),
    queue_wait=st.sampled_from([0.0, 0.05, 0.5]),
    rtt=st.none() | st.sampled_from([0.05, 0.9]),
    transport_errors=st.sampled_from([0, 0, 1]),
)


class Controllers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        ids = itertools.count(1)
        self.now = 0.0
        self.controller = Controller(CONFIG, lambda: f"c{next(ids)}", lambda: 0.5)
        self.controller.start(0.0)
        self.dialing: set[str] = set()
        self.joined: set[str] = set()
        self.draining: dict[str, float] = {}
        self.ever: list[str] = []
        self.downs: list[float] = []
        self.ups: list[float] = []
        self.closed: list[str] = []
        self.acked = False
        self.obey()

    def obey(self) -> None:
        while (order := self.controller.next_order()) is not None:
            self.carry_out(order)

    def carry_out(self, order: Order) -> None:
        match order:
            case Dial(name):
                assert name not in self.ever  # a fresh one each time
                assert not self.dialing or self.joined or self.draining  # the first alone, until there is an ack
                self.ever.append(name)
                self.dialing.add(name)
            case Drain(name, _, timeout):
                assert name in self.joined
                self.joined.discard(name)
                self.draining[name] = self.now + timeout
            case Close(name, reason):
                assert name not in self.closed
                self.closed.append(name)
                if reason is CloseReason.CEILING:
                    assert name in self.dialing
                    self.dialing.discard(name)
                else:
                    expired = self.now >= self.draining.pop(name)
                    assert expired or reason is CloseReason.DRAINED

    def step(self) -> None:
        before = dict(self.controller.scaler.counts)
        self.controller.handle_timeout(self.now)
        after = self.controller.scaler.counts
        if after[Decision.SCALE_DOWN] > before[Decision.SCALE_DOWN]:
            self.downs.append(self.now)
        if after[Decision.SCALE_UP] > before[Decision.SCALE_UP]:
            self.ups.append(self.now)
        self.obey()

    @precondition(lambda self: self.dialing)
    @rule(data=st.data(), ack=ACKS)
    def dial_ok(self, data: st.DataObject, ack: Ack) -> None:
        name = data.draw(st.sampled_from(sorted(self.dialing)))
        self.dialing.discard(name)
        self.joined.add(name)
        self.controller.joined(name, ack, self.now)
        self.obey()

    @precondition(lambda self: self.dialing)
    @rule(data=st.data(), failure=st.sampled_from(Failure), retry_after=st.sampled_from([0.0, 5.0]))
    def dial_fail(self, data: st.DataObject, failure: Failure, retry_after: float) -> None:
        name = data.draw(st.sampled_from(sorted(self.dialing)))
        self.dialing.discard(name)
        self.controller.dial_failed(name, failure, self.now, retry_after)
        self.obey()

    @precondition(lambda self: self.ever)
    @rule(data=st.data(), report=REPORTS)
    def report(self, data: st.DataObject, report: Report) -> None:
        """Of any connection that ever was, and perhaps twice."""
        self.controller.report(data.draw(st.sampled_from(self.ever)), report)

    @rule(report=REPORTS)
    def report_all(self, report: Report) -> None:
        for name in self.controller.active:
            self.controller.report(name, report)

    @precondition(lambda self: self.joined or self.draining)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.joined | set(self.draining))))
        self.joined.discard(name)
        self.draining.pop(name, None)
        self.controller.lost(name, self.now)
        self.obey()

    @precondition(lambda self: self.joined)
    @rule(data=st.data(), reason=st.sampled_from(DrainReason))
    def goaway(self, data: st.DataObject, reason: DrainReason) -> None:
        name = data.draw(st.sampled_from(sorted(self.joined)))
        self.joined.discard(name)
        self.draining[name] = self.now + 20.0
        self.controller.goaway(name, reason, self.now, 20.0, 0.0)
        self.obey()

    @precondition(lambda self: self.draining)
    @rule(data=st.data())
    def streams_end(self, data: st.DataObject) -> None:
        self.controller.drained(data.draw(st.sampled_from(sorted(self.draining))), self.now)
        self.obey()

    @precondition(lambda self: self.joined)
    @rule(data=st.data(), ack=ACKS)
    def ack_anew(self, data: st.DataObject, ack: Ack) -> None:
        self.controller.acknowledged(data.draw(st.sampled_from(sorted(self.joined))), ack, self.now)
        self.obey()

    @rule(seconds=st.sampled_from([1.0, 10.0, 35.0]))
    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.controller.deadline <= end:
            self.now = max(self.now, self.controller.deadline)
            self.step()
        self.now = end

    @invariant()
    def there_are_no_fewer_and_no_more_than_may_be(self) -> None:
        count = self.controller.count
        assert min(CONFIG.min, self.controller.ceiling) <= count <= self.controller.ceiling <= CONFIG.max

    @invariant()
    def it_knows_what_there_is(self) -> None:
        assert set(self.controller.active) == self.joined
        assert len(self.dialing) + len(self.joined) <= self.controller.count

    @invariant()
    def changes_are_a_cooldown_apart(self) -> None:
        for down in self.downs:
            assert all(not 0 < down - other < CONFIG.cooldown for other in self.downs + self.ups)

    @invariant()
    def every_evaluation_is_recorded_with_its_reason(self) -> None:
        scaler = self.controller.scaler
        assert len(scaler.records) == min(scaler.counts.total(), MAX_RECORDS)
        for record in scaler.records:
            assert (record.wanted is not None) == (record.decision is Decision.REJECTED)


TestControllers = Controllers.TestCase
TestControllers.settings = settings(max_examples=50, stateful_step_count=50, deadline=None)


@given(st.integers(0, 200))
@settings(max_examples=20, deadline=None)
def test_a_constant_load_comes_to_rest(streams: int) -> None:
    """Spread evenly, as the router does."""
    world = World(ConnectionsConfig(max=8))
    world.load = lambda name: Report(active_streams=-(-streams // max(world.controller.count, 1)))
    world.start().run(1800.0)
    settled = world.controller.count
    world.run(1800.0)
    assert world.controller.count == settled
    assert streams / settled < 16 or settled == 8
    if streams == 0:
        assert settled == 1


@given(st.floats(1.0, 100.0))
@settings(max_examples=30, deadline=None)
def test_whatever_the_load_does_the_direction_changes_seldom(period: float) -> None:
    world = World(ConnectionsConfig(max=4))
    world.load = lambda _: Report(active_streams=20 if world.now % period < period / 2 else 0)
    world.start()
    changes: list[tuple[float, Decision]] = []
    for _ in range(120):
        before = len(world.records)
        world.run(10.0)
        fresh = world.records[before:] if before < MAX_RECORDS else world.records[-1:]
        changes += [(one.at, one.decision) for one in fresh if one.decision in (Decision.SCALE_UP, Decision.SCALE_DOWN)]
    reversals = [at for (_, one), (at, other) in itertools.pairwise(changes) if one is not other]
    assert all(sum(first <= at < first + 600.0 for at in reversals) <= 4 for first in reversals)


LOADS = st.lists(
    st.tuples(
        st.sampled_from([1, 1, 2, 3, 5, 12, 40]),  # looks that it lasts
        st.builds(
            Report,
            active_streams=st.sampled_from([0, 1, 2, 3, 15, 16, 60]),
            queue_pressure=st.sampled_from([0.0, 0.0, 0.79, 1.0]),
            queue_wait=st.sampled_from([0.0, 0.0, 0.05, 3.0]),
            rtt=st.none() | st.sampled_from([0.05, 0.9]),
            transport_errors=st.sampled_from([0, 0, 0, 1]),
            sent_rate=st.sampled_from([0.0, 1e5, 1e7]),
        ),
    ),
    max_size=60,
)


@given(LOADS, st.integers(1, 3), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_whatever_is_reported_the_direction_changes_seldom(
    loads: list[tuple[int, Report]], least: int, more: int
) -> None:
    """Of an adversary who chooses every report, and knows when somebody looks."""
    world = World(ConnectionsConfig(min=least, max=least + more))
    changes: list[tuple[float, Decision]] = []
    world.start()
    for looks, report in loads:
        world.load = partial(_always, report)
        for _ in range(looks):
            before = dict(world.controller.scaler.counts)
            world.run(10.0)
            after = world.controller.scaler.counts
            for decision in (Decision.SCALE_UP, Decision.SCALE_DOWN):
                changes += [(world.now, decision)] * (after[decision] - before[decision])
    reversals = [at for (_, one), (at, other) in itertools.pairwise(changes) if one is not other]
    assert all(sum(first <= at < first + 600.0 for at in reversals) <= 4 for first in reversals)
    downs = [at for at, decision in changes if decision is Decision.SCALE_DOWN]
    for down in downs:
        assert all(not 0 < down - at < 30.0 for at, _ in changes)


def _always(report: Report, _: str) -> Report:
    return report


def test_a_load_that_comes_and_goes_within_the_window_changes_nothing() -> None:
    world = World(ConnectionsConfig(min=2, max=4))
    world.load = lambda _: Report(active_streams=20 if world.now % 20 < 10 else 0)
    world.start().run(1200.0)
    assert (len(world.of(Dial)), world.of(Drain)) == (2, [])


# ── one connection, as ever ──


@attrs.define
class OneConnection:
    """What an agent without pools does: dial, and when that or the connection fails, dial again."""

    dials: list[float] = attrs.Factory(list[float])
    failures: int = 0
    next_at: float = 0.0

    def dial(self, now: float) -> None:
        self.dials.append(now)

    def failed(self, now: float, lasted: float = 0.0) -> None:
        self.failures = 0 if lasted >= 30.0 else self.failures
        self.next_at = now + min(2.0**self.failures, 30.0)
        self.failures += 1


@given(st.lists(st.sampled_from([-1.0, 5.0, 31.0, 200.0]), max_size=20))
def test_one_connection_is_dialled_as_ever(fates: list[float]) -> None:
    """Each dial fails (-1), or brings a connection that lasts so long; whatever it is loaded with."""
    world = World(ConnectionsConfig(), ack=None, chance=lambda: 1.0, load=lambda _: Report(active_streams=500))
    single = OneConnection()
    world.start()
    single.dial(0.0)
    for n, lasts in enumerate(fates, 1):
        if lasts < 0:
            world.controller.dial_failed(f"c{n}", Failure.NETWORK, world.now)
            single.failed(world.now)
        else:
            world.controller.joined(f"c{n}", POOL, world.now)
            world.run(lasts)
            world.controller.lost(f"c{n}", world.now)
            single.failed(world.now, lasts)
        world.run(single.next_at - world.now + 0.001)
        single.dial(single.next_at)
    assert [at for at, order in world.orders if isinstance(order, Dial)] == single.dials
    assert not world.of(Drain)
