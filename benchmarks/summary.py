"""Numbers out of many: median and range, percentiles, and how a cost grows. Pure, and without any dependency."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Summary(NamedTuple):
    """Repeats of one measurement."""

    median: float
    low: float
    high: float


class Fit(NamedTuple):
    """`cost = factor * size ** exponent`.

    Attributes:
        exponent: 0 when the cost does not depend on the size, 1 when it is in proportion.
        r2: how much of the variation of log(cost) that explains, 0 to 1; 1 when the cost does not vary.
    """

    exponent: float
    factor: float
    r2: float

    def at(self, size: float) -> float:
        return self.factor * math.pow(size, self.exponent)


def summarize(values: Sequence[float]) -> Summary:
    """Median, least and greatest. Raises ValueError when there are none."""
    if not values:
        raise ValueError("nothing was measured")
    return Summary(statistics.median(values), min(values), max(values))


def percentile(values: Sequence[float], percent: float) -> float:
    """The least value that `percent` of all do not exceed (nearest rank). Raises ValueError when there are none."""
    if not values:
        raise ValueError("nothing was measured")
    rank = math.ceil(percent / 100 * len(values))
    return sorted(values)[max(rank, 1) - 1]


def fit_power(sizes: Sequence[float], costs: Sequence[float]) -> Fit:
    """The power law through the points, by least squares of the logarithms.

    Raises:
        ValueError: fewer than two different sizes, not as many costs, or one that is not above 0.
    """
    if len(sizes) != len(costs) or len(set(sizes)) < 2:
        raise ValueError(f"a fit needs two different sizes and a cost for each, not {sizes} and {costs}")
    if min(*sizes, *costs) <= 0:
        raise ValueError("a power law has sizes and costs above 0")
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    mean_x, mean_y = statistics.fmean(x), statistics.fmean(y)
    spread_x = sum((one - mean_x) ** 2 for one in x)
    exponent = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread_x
    left = sum((b - mean_y - exponent * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))
    spread_y = sum((one - mean_y) ** 2 for one in y)
    return Fit(exponent, math.exp(mean_y - exponent * mean_x), 1 - left / spread_y if spread_y else 1.0)
