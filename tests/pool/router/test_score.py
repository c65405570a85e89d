import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.pool.router.score import (
    MAX_PENALTY,
    STREAM,
    Load,
    error_penalty,
    health_score,
    newness_penalty,
    queue_penalty,
    rtt_penalty,
    score,
)

HUGE = st.integers(0, 2**63)
LOADS = st.builds(
    Load,
    active=st.integers(0, 10_000),
    queued_bytes=HUGE,
    queue_limit_bytes=HUGE,
    queue_wait_us=HUGE,
    rtt_us=st.none() | HUGE,
    errors=st.integers(0, 1000),
    age_us=HUGE,
    stats_age_ms=HUGE,
)


def test_the_numbers() -> None:
    assert score(Load(active=3), None) == 3 * STREAM
    assert queue_penalty(Load(queued_bytes=1, queue_limit_bytes=1)) == MAX_PENALTY == 16 * STREAM
    assert queue_penalty(Load(queue_wait_us=100_000)) == 4 * STREAM  # half of what is as bad as a full queue: a quarter
    assert queue_penalty(Load(queue_wait_us=10**9)) == MAX_PENALTY
    assert rtt_penalty(75_000, 25_000) == 2 * STREAM
    assert rtt_penalty(10**9, 0) == MAX_PENALTY
    assert rtt_penalty(None, 5) == rtt_penalty(5, None) == rtt_penalty(5, 10) == 0
    assert error_penalty(500) == 8 * STREAM
    assert [newness_penalty(age) // STREAM for age in (0, 1, 1_250_000, 9_999_999, 10_000_000)] == [8, 8, 7, 1, 0]
    assert score(Load(stats_age_ms=15_000), None) == 1500
    assert score(Load(stats_age_ms=10**9), None) == 4 * STREAM


@given(LOADS, st.none() | HUGE)
def test_any_load_has_a_score(load: Load, best: int | None) -> None:
    assert 0 <= score(load, best) - STREAM * load.active <= 3 * MAX_PENALTY + 12 * STREAM
    assert 0 <= health_score(load, best) <= 100


@pytest.mark.parametrize("name", ["active", "queued_bytes", "queue_wait_us", "rtt_us", "errors", "stats_age_ms"])
@given(load=LOADS, best=HUGE, more=st.integers(1, 2**40))
def test_more_of_anything_never_makes_it_better(name: str, load: Load, best: int, more: int) -> None:
    value: int = getattr(load, name) or 0
    worse = attrs.evolve(load, **{name: min(value + more, 1000) if name == "errors" else value + more})
    assert score(worse, best) >= score(attrs.evolve(load, **{name: value}), best)


def test_health_is_computed() -> None:
    assert health_score(Load(active=500), 0) == 100
    assert health_score(Load(errors=1000), 0) == 50
    assert health_score(Load(errors=1000, rtt_us=10**9, queue_wait_us=10**9), 0) == 0
