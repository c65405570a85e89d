"""How long things took: a histogram that is a value of its own, for whoever shows it."""

from bisect import bisect_left
from itertools import accumulate

import attrs

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)  # seconds


@attrs.define
class Durations:
    """Counts by how long it took.

    Attributes:
        counts: for each of BOUNDS how many took no longer than it and longer than the one before; last, the rest.
        total: seconds, of all together.
    """

    counts: list[int] = attrs.Factory(lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def copy(self) -> "Durations":
        return Durations(list(self.counts), self.total)

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus has them: for each bound how many took no longer, and all at last."""
        names = [*map(str, BOUNDS), "+Inf"]
        return list(zip(names, map(float, accumulate(self.counts)), strict=True))
