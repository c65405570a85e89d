"""The token bucket against its definition: never more than burst + rate x time, and never less than is due."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.control_plane.ratelimit import TokenBucket


def test_a_burst_passes_and_then_the_rate() -> None:
    bucket = TokenBucket(rate=10, burst=20)
    assert [bucket.take(0.0) for _ in range(21)] == [True] * 20 + [False]
    assert bucket.take(0.1)
    assert not bucket.take(0.1)


def test_a_quiet_time_fills_no_more_than_the_burst() -> None:
    bucket = TokenBucket(rate=10, burst=3)
    bucket.take(0.0)
    assert [bucket.take(1e9) for _ in range(4)] == [True, True, True, False]


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(rate=1, burst=1)
    assert bucket.take(100.0)
    assert not bucket.take(50.0)
    assert not bucket.take(100.5)
    assert bucket.take(101.0)


@given(st.floats(0.1, 100), st.integers(1, 50), st.lists(st.floats(0, 2), max_size=100))
def test_never_more_than_promised(rate: float, burst: int, pauses: list[float]) -> None:
    bucket, now, passed = TokenBucket(rate, burst), 0.0, 0
    for pause in pauses:
        now += pause
        passed += bucket.take(now)
        assert passed <= burst + rate * now + 1e-6


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (1, 0.5), (float("nan"), 1)])
def test_senseless_buckets_are_refused(rate: float, burst: float) -> None:
    with pytest.raises(ValueError, match="rate is above 0"):
        TokenBucket(rate, burst)
