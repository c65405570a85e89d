import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.pool.router.health import (
    BASE_EJECTION,
    HALF_LIFE,
    MAX_EJECTION,
    TRANSITIONS,
    FailureRate,
    Health,
    Standing,
    Verdict,
)


def failing(now: float = 0.0) -> Health:
    health = Health()
    for _ in range(5):
        health.record(True, now)
    return health


def test_every_cell_is_decided() -> None:
    assert len(TRANSITIONS) == len(Standing) * len(Verdict)


def test_four_failures_are_no_rate_and_five_are() -> None:
    rate = FailureRate()
    for n in range(5):
        assert not rate.is_unhealthy(0.0), n
        rate.record(True, 0.0)
    assert rate.is_unhealthy(0.0)
    assert rate.thousandths(0.0) == round(1000 * (1 - 0.8**5))


def test_it_halves_in_thirty_seconds() -> None:
    rate = FailureRate()
    rate.record(True, 0.0)
    assert rate.thousandths(HALF_LIFE) == 100
    assert rate.thousandths(0.0) == 100  # time does not go back
    assert rate.thousandths(10 * HALF_LIFE) == 0


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 100)), max_size=50))
def test_a_rate_is_a_rate(outcomes: list[tuple[bool, float]]) -> None:
    rate, now = FailureRate(), 0.0
    for failed, dt in outcomes:
        now += dt
        before = rate.thousandths(now)
        rate.record(failed, now)
        assert 0 <= rate.thousandths(now) <= 1000
        assert (rate.thousandths(now) >= before) or not failed


def test_a_connection_that_fails_is_left_out_then_tried_once() -> None:
    health = failing()
    assert health.standing(BASE_EJECTION - 0.1) is Standing.OUT
    assert not health.begin(BASE_EJECTION - 0.1)
    assert health.standing(BASE_EJECTION) is Standing.ON_TRIAL
    assert health.begin(BASE_EJECTION)
    assert not health.begin(BASE_EJECTION)  # one at a time
    health.give_up(True)
    assert health.begin(BASE_EJECTION)
    health.record(False, BASE_EJECTION, trial=True)
    assert (health.standing(BASE_EJECTION), health.rate.thousandths(BASE_EJECTION)) == (Standing.IN, 0)


def test_each_time_it_is_left_out_twice_as_long() -> None:
    health, now, waits = failing(), 0.0, list[float]()
    for _ in range(6):
        began = now
        while health.standing(now) is Standing.OUT:
            now += 1.0
        waits.append(now - began)
        assert health.begin(now)
        health.record(True, now, trial=True)
    assert waits == [30.0, 60.0, 120.0, 240.0, MAX_EJECTION, MAX_EJECTION]


def test_a_long_good_time_begins_the_count_anew() -> None:
    health = failing()
    assert health.standing(30.0) is Standing.ON_TRIAL
    health.begin(30.0)
    health.record(False, 30.0, trial=True)
    for _ in range(5):
        health.record(True, 30.0 + MAX_EJECTION + 1)
    assert health.standing(30.0 + MAX_EJECTION + BASE_EJECTION) is Standing.OUT
    assert health.standing(31.0 + MAX_EJECTION + BASE_EJECTION) is Standing.ON_TRIAL


@pytest.mark.parametrize("trial", [False, True])
def test_giving_up_says_nothing_of_the_connection(trial: bool) -> None:
    health = Health()
    health.give_up(trial)
    assert health.rate.thousandths(0.0) == 0
