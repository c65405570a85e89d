"""How long things took: a histogram that is a value of its own, for whoever shows it."""

from bisect import bisect_left
from itertools import accumulate

import attrs

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)  # seconds


@attrs.define
class Durations:
    """Counts by how long it took.

    Attributes:
        bounds: seconds, ascending.
        counts: for each of these how many took no longer than it and longer than the one before; last, the rest.
        total: seconds, of all together.
    """

    bounds: tuple[float, ...] = BOUNDS
    counts: list[int] = attrs.Factory(lambda self: [0] * (len(self.bounds) + 1), takes_self=True)
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def copy(self) -> "Durations":
        return Durations(self.bounds, list(self.counts), self.total)

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus has them: for each bound how many took no longer, and all at last."""
        names = [*map(str, self.bounds), "+Inf"]
        return list(zip(names, map(float, accumulate(self.counts)), strict=True))
