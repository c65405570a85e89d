"""Reports as distributions: how soon members were ready and made their calls, of all runs and by a label."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import attrs

from agentmesh.bench.report import JoinReport, merge, percentile

SHARES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "max": 100.0}
NO_LABEL = "-"


@attrs.frozen
class Distribution:
    """So many values; milliseconds."""

    count: int
    values: dict[str, float]

    @classmethod
    def of(cls, values: Sequence[float]) -> "Distribution":
        return cls(len(values), {name: percentile(values, share) for name, share in SHARES.items()})


@attrs.frozen
class Row:
    """Several reports as one, and what is told of it."""

    name: str
    reports: int
    report: JoinReport
    ready_ms: Distribution
    first_call_ms: Distribution

    def to_json(self) -> dict[str, Any]:
        join = attrs.asdict(self.report)
        del join["members"], join["labels"]
        return {
            "name": self.name,
            "reports": self.reports,
            **join,
            "ready_ms": attrs.asdict(self.ready_ms),
            "first_call_ms": attrs.asdict(self.first_call_ms),
        }


def row_of(name: str, reports: Sequence[JoinReport]) -> Row:
    """Of one report at least."""
    merged = merge(reports)
    calls = [member.first_call_ms for member in merged.members if member.first_call_ms is not None]
    ready = [member.ready_ms for member in merged.members]
    return Row(name, len(reports), merged, Distribution.of(ready), Distribution.of(calls))


def rows_by(label: str | None, reports: Sequence[JoinReport]) -> list[Row]:
    """A row for each value of a label, in order, and one of all; that one alone without a label."""
    groups: defaultdict[str, list[JoinReport]] = defaultdict(list)
    for report in reports if label is not None else ():
        groups[report.labels.get(label or "", NO_LABEL)].append(report)
    parts = [row_of(f"{label}={value}", groups[value]) for value in sorted(groups, key=_as_number)]
    return [*parts, row_of("all", reports)]


def _as_number(value: str) -> tuple[int, str]:
    """Steps in their order: 2 before 10."""
    return (int(value) if value.isdecimal() else -1, value)
