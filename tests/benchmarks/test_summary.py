"""Statistics: what is known in advance comes out, and nothing is made of nothing."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.machine import busy_between
from benchmarks.summary import Summary, fit_power, percentile, summarize

VALUES = st.lists(st.floats(1e-9, 1e12), min_size=1)


def test_a_summary_is_the_median_between_the_extremes() -> None:
    assert summarize([3.0, 1.0, 2.0]) == Summary(2.0, 1.0, 3.0)
    assert summarize([4.0, 1.0]) == Summary(2.5, 1.0, 4.0)


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (1, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)])
def test_a_percentile_is_a_value_that_was_measured(percent: float, value: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], percent) == value


@given(VALUES, st.floats(0, 100))
def test_a_percentile_has_its_share_below_it(values: list[float], percent: float) -> None:
    found = percentile(values, percent)
    assert sum(value <= found for value in values) >= percent / 100 * len(values) - 1e-9
    assert min(values) <= found <= max(values)


@given(st.floats(-2, 3), st.floats(1e-6, 1e6), st.lists(st.integers(1, 10_000), min_size=2, max_size=6, unique=True))
def test_a_power_law_is_found_again(exponent: float, factor: float, sizes: list[int]) -> None:
    fit = fit_power(sizes, [factor * size**exponent for size in sizes])
    assert fit.exponent == pytest.approx(exponent, abs=1e-6)
    assert fit.at(100) == pytest.approx(factor * math.pow(100, exponent), rel=1e-3)


def test_a_constant_cost_has_exponent_0_and_leaves_nothing_unexplained() -> None:
    fit = fit_power([10, 100, 1000], [7.0, 7.0, 7.0])
    assert fit.exponent == pytest.approx(0)
    assert fit.r2 == 1.0


def test_noise_shows_in_r2() -> None:
    assert fit_power([10, 100, 1000], [1.0, 50.0, 2.0]).r2 < 0.2


@pytest.mark.parametrize(
    ("sizes", "costs"), [([10], [1.0]), ([10, 10], [1.0, 2.0]), ([1, 2], [1.0]), ([1, 2], [0.0, 1.0]), ([0, 2], [1, 1])]
)
def test_what_has_no_power_law_is_an_error(sizes: list[float], costs: list[float]) -> None:
    with pytest.raises(ValueError, match=r"fit|power law"):
        fit_power(sizes, costs)


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        summarize([])
    with pytest.raises(ValueError, match="nothing was measured"):
        percentile([], 50)


def test_a_core_that_waits_for_a_disk_is_idle() -> None:
    before = [100, 0, 50, 1000, 10, 0, 0, 0]
    assert busy_between(before, [125, 0, 75, 1040, 20, 0, 0, 0]) == 0.5
    assert busy_between(before, before) == 0
