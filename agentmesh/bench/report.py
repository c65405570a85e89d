"""What a run of members found, as JSON has it, and several runs as one."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import attrs

from agentmesh.errors import MeshError

MAX_REPORT_BYTES = 64 * 1024 * 1024


class ReportError(MeshError):
    """A file is no report of members that joined."""


@attrs.frozen
class Member:
    """A member that became ready.

    Attributes:
        ready_ms: from its start, enrollment included, until a router held it.
        first_call_ms: from then until its first call was answered, with the tries before; None when none was.
    """

    ready_ms: float
    first_call_ms: float | None = None


@attrs.frozen
class Outages:
    """How long members were without a router, each time: the median and the longest; 0 when none was."""

    p50: float = 0.0
    max: float = 0.0


@attrs.frozen
class Hold:
    """What became of members in the time after the last of them was ready.

    Attributes:
        seconds: how long that was.
        resident: members that were ready when it began.
        min_ready: the fewest that were at once. Of several reports together: at least so many.
        flaps: times that one of them lost its last router.
        members_flapped: members to which that happened.
        outage_ms: how long it then took to have one again; those that lasted to the end count as far as that.
        members_not_ready_at_end: without a router when it was over.
        members_exited: that ended by themselves, or with their process.
    """

    seconds: float
    resident: int
    min_ready: int
    flaps: int
    members_flapped: int
    outage_ms: Outages
    members_not_ready_at_end: int
    members_exited: int


@attrs.frozen
class JoinReport:
    """One run.

    Attributes:
        members: those that became ready, in that order.
        count: how many there were to be.
        completed: members that became ready and, where there was a service to call, were answered.
        failed: members that did not, and gave up.
        call_attempts: calls that were made to get the first answers.
        elapsed_seconds: from the first member's start until all had completed or failed, or the run was broken off.
        errors: why members failed or exited, and how many.
        call_errors: why calls were not answered, and how many.
        hold: None when it did not come to that.
        labels: what the run is called by.
    """

    members: tuple[Member, ...]
    count: int
    completed: int
    failed: int
    call_attempts: int
    elapsed_seconds: float
    errors: Mapping[str, int]
    call_errors: Mapping[str, int]
    hold: Hold | None
    labels: Mapping[str, str] = attrs.field(factory=dict[str, str])

    @property
    def is_good(self) -> bool:
        """Whether every member came, and none fell out."""
        return self.completed == self.count and (self.hold is None or not self.hold.members_exited)

    def to_json(self) -> str:
        content = attrs.asdict(self)
        return json.dumps({"labels": content.pop("labels"), "join": content}, indent=2) + "\n"

    @classmethod
    def of_json(cls, text: str) -> "JoinReport":
        """Raises ReportError."""
        try:
            content: Any = json.loads(text)
            join: dict[str, Any] = dict(content["join"])
            join["members"] = tuple(Member(**one) for one in join["members"])
            if join["hold"] is not None:
                hold: dict[str, Any] = dict(join["hold"])
                outages = Outages(**hold.pop("outage_ms"))
                join["hold"] = Hold(outage_ms=outages, **hold)
            return cls(labels=cast("dict[str, str]", dict(content["labels"])), **join)
        except (ValueError, TypeError, LookupError) as exc:
            raise ReportError(f"no report of members that joined: {exc}") from exc


def read_report(path: Path) -> JoinReport:
    """Raises ReportError."""
    try:
        with path.open(encoding="utf-8") as file:
            return JoinReport.of_json(file.read(MAX_REPORT_BYTES))
    except OSError as exc:
        raise ReportError(f"{path}: {exc.strerror}") from exc
    except (UnicodeDecodeError, ReportError) as exc:
        raise ReportError(f"{path}: {exc}") from exc


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that so many of a hundred are not above; 0 of none."""
    rank = math.ceil(len(values) * share / 100)
    return sorted(values)[max(rank, 1) - 1] if values else 0.0


def merge(reports: Sequence[JoinReport]) -> JoinReport:
    """Several runs that went on at the same time, as one; at least one. Labels that all of them have stay."""
    holds = [report.hold for report in reports if report.hold is not None]
    named = Counter(pair for report in reports for pair in report.labels.items())
    return JoinReport(
        members=tuple(sorted((one for report in reports for one in report.members), key=lambda one: one.ready_ms)),
        count=sum(report.count for report in reports),
        completed=sum(report.completed for report in reports),
        failed=sum(report.failed for report in reports),
        call_attempts=sum(report.call_attempts for report in reports),
        elapsed_seconds=max(report.elapsed_seconds for report in reports),
        errors=_added(report.errors for report in reports),
        call_errors=_added(report.call_errors for report in reports),
        hold=_merged(holds) if holds else None,
        labels=dict(pair for pair, count in named.items() if count == len(reports)),
    )


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    return dict(sum((Counter(one) for one in counts), Counter[str]()).most_common())


def _merged(holds: Sequence[Hold]) -> Hold:
    """The median of all outages is not known from those of some: each counts as often as there were outages."""
    medians = [hold.outage_ms.p50 for hold in holds for _ in range(hold.flaps)]
    return Hold(
        seconds=min(hold.seconds for hold in holds),
        resident=sum(hold.resident for hold in holds),
        min_ready=sum(hold.min_ready for hold in holds),
        flaps=sum(hold.flaps for hold in holds),
        members_flapped=sum(hold.members_flapped for hold in holds),
        outage_ms=Outages(percentile(medians, 50), max(hold.outage_ms.max for hold in holds)),
        members_not_ready_at_end=sum(hold.members_not_ready_at_end for hold in holds),
        members_exited=sum(hold.members_exited for hold in holds),
    )
