import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.agent.scaling import (
    FLAP_INTERVAL,
    MAX_REVERSALS,
    Benefit,
    Decision,
    FlapBudget,
    Report,
    Seen,
    leaves_room,
    pressure,
)
from tests.pool.agent.driving import World

CONFIG = ConnectionsConfig(max=8)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 400)), max_size=200))
def test_the_direction_changes_so_often_and_no_more(wishes: list[tuple[bool, float]]) -> None:
    flaps, now, changes = FlapBudget(), 0.0, list[tuple[float, Decision]]()
    for up, seconds in wishes:
        now += seconds
        if up or flaps.may_go_down(now):
            decision = Decision.SCALE_UP if up else Decision.SCALE_DOWN
            flaps.went(decision, now)
            changes.append((now, decision))
    reversals = [at for (_, before), (at, after) in itertools.pairwise(changes) if before is not after]
    for first in reversals:
        assert sum(first <= at < first + FLAP_INTERVAL for at in reversals) <= MAX_REVERSALS


def test_a_budget_that_is_spent_comes_back() -> None:
    flaps = FlapBudget()
    for at in (0.0, 1.0):
        for decision in (Decision.SCALE_DOWN, Decision.SCALE_UP):
            assert decision is Decision.SCALE_UP or flaps.may_go_down(at)
            flaps.went(decision, at)
    assert not flaps.may_go_down(2.0)
    assert flaps.is_frozen(2.0)
    assert not flaps.may_go_down(2.0 + FLAP_INTERVAL - 0.1)
    assert flaps.may_go_down(2.0 + FLAP_INTERVAL)


REPORTS = st.builds(
    Report,
    active_streams=st.integers(0, 40),
    queue_pressure=st.floats(0, 1),
    queue_wait=st.floats(0, 1),
    rtt=st.none() | st.floats(0, 2),
    transport_errors=st.integers(0, 2),
    open_failures=st.integers(0, 100),
    target_wait=st.floats(0, 100),
)
SEEN = st.lists(st.builds(Seen, st.just("c"), REPORTS, st.none() | st.floats(0, 2), st.booleans()), max_size=5)


@given(SEEN, st.integers(0, 100), st.floats(0, 100))
def test_targets_have_no_say(seen: list[Seen], failures: int, wait: float) -> None:
    def blamed(one: Seen) -> Seen:
        report = one.report
        return Seen(
            one.connection_id,
            Report(
                report.active_streams,
                report.queue_pressure,
                report.queue_wait,
                report.rtt,
                report.transport_errors,
                failures,
                wait,
            ),
            one.best_rtt,
            one.has_carried,
        )

    assert pressure(seen, CONFIG) is pressure([blamed(one) for one in seen], CONFIG)


@given(SEEN)
def test_where_there_is_room_without_one_nobody_is_wanted(seen: list[Seen]) -> None:
    if leaves_room(seen, CONFIG):
        total = sum(one.report.active_streams for one in seen)
        assert total / (len(seen) - 1) < CONFIG.high_watermark / 2


def test_without_a_wait_there_is_nothing_to_improve() -> None:
    benefit = Benefit()
    seen = [Seen("c", Report(active_streams=20))]
    assert not benefit.look(seen, joined=True)
    benefit.begin(seen)
    assert not benefit.look(seen, joined=False)
    assert not benefit.look(seen, joined=True)
    assert not benefit.look(seen, joined=True)
    assert benefit.patience == 1


@pytest.mark.parametrize(
    ("before", "after", "helped"),
    [
        ([1000.0], [1000.0, 500.0], True),  # two carry half as much again
        ([1000.0], [550.0, 500.0], False),  # a link that is full is shared, and no more
        ([1000.0], [0.0, 0.0], False),
        ([0.0], [0.0, 0.0], False),
    ],
)
def test_what_lets_more_bytes_leave_helps_though_the_queues_stay_full(
    before: list[float], after: list[float], helped: bool
) -> None:
    benefit = Benefit()
    benefit.begin([Seen("c", Report(queue_wait=5.0, sent_rate=rate)) for rate in before])
    seen = [Seen("c", Report(queue_wait=5.0, sent_rate=rate)) for rate in after]
    assert not benefit.look(seen, joined=True)
    assert benefit.look(seen, joined=True) is not helped
    assert (benefit.patience == 1) is helped


def test_a_lossy_link_gets_as_many_as_there_may_be_and_a_full_one_does_not() -> None:
    """Each connection carries as much as the loss allows, and all of them are full; or one link is, whoever uses it."""
    lossy = World(load=lambda _: Report(queue_wait=5.0, sent_rate=1e5)).start()
    full = World(load=lambda _: Report(queue_wait=5.0, sent_rate=1e5 / full.controller.count)).start()
    lossy.run(300.0)
    full.run(300.0)
    assert (lossy.controller.count, full.controller.count) == (8, 5)
