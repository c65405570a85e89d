"""What a run found, and its form in JSON: what `--json` writes and `show` reads."""

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs

from agentmesh.errors import MeshError
from benchmarks.figures import WORK, Figure, figures_of, measured_by
from benchmarks.machine import Machine
from benchmarks.summary import Fit, Summary, fit_power, summarize

FORMAT = 1
ROLES = ("caller", "router", "server", "crowd")  # whose CPU time is among the values


class ResultsError(MeshError):
    """A file that holds no results of this format."""


def _tuple(values: Iterable[str]) -> tuple[str, ...]:
    """JSON has lists only."""
    return tuple(values)


@attrs.frozen
class Measurement:
    """One scenario, or one size of a growth, of one stack, once.

    Attributes:
        scenario: its name; of a growth, what grows.
        repeat: from 0.
        values: by name, in bytes and seconds.
        size: of a growth.
        error: why there are no values, in one line.
    """

    stack: str
    scenario: str
    repeat: int
    values: dict[str, float] = attrs.field(factory=dict[str, float])
    size: int = 0
    error: str | None = None


def _error_of(measurement: Measurement) -> str:
    failed, well = (int(measurement.values.get(name, 0)) for name in ("failed", "count"))
    return measurement.error or (f"{failed} failed, {well} went well" if failed else "")


@attrs.frozen
class Settings:
    """How it was measured: seconds of each measurement, members of S6 and S7."""

    scenarios: tuple[str, ...] = attrs.field(converter=_tuple)
    repeat: int
    seconds: float
    members: int


@attrs.define
class Results:
    """Everything that a run found.

    Attributes:
        kind: "scenarios" or "growth".
        when: it began, in UTC (ISO 8601).
        stacks: names, in the order of the tables.
        left_out: baselines that could not run, and why.
        took: seconds.
        is_whole: it came to its end.
    """

    kind: str
    when: str
    machine: Machine
    settings: Settings
    stacks: tuple[str, ...] = attrs.field(converter=_tuple)
    left_out: dict[str, str] = attrs.field(factory=dict[str, str])
    measurements: list[Measurement] = attrs.field(factory=list[Measurement])
    took: float = 0.0
    is_whole: bool = False

    # ── scenarios ──

    @property
    def figures(self) -> list[Figure]:
        """Those of the scenarios that were asked for."""
        return figures_of(self.settings.scenarios)

    def summary(self, stack: str, figure: Figure) -> Summary | None:
        """A figure over all repeats, in its unit; None when there is none."""
        found = [
            one.values[figure.name] * figure.scale
            for one in self._of(stack, measured_by(figure.scenario))
            if figure.name in one.values
        ]
        return summarize(found) if found else None

    def ratio(self, stack: str, figure: Figure) -> float | None:
        """The median over that of the figure's reference in this run."""
        reference = self.summary(figure.reference, figure) if figure.reference else None
        own = self.summary(stack, figure)
        return own.median / reference.median if own and reference and reference.median else None

    def cpu(self, stack: str, scenario: str) -> dict[str, float]:
        """What a piece of a scenario's work costs each process of a stack, by its role, in the unit of that work.

        The machine's load hardly changes it, so it says more than a rate when others use the machine.
        """
        work, found = WORK[scenario], dict[str, list[float]]()
        for one in self._of(stack, scenario):
            for role in ROLES:
                if f"cpu_{role}" in one.values and one.values[work.name]:
                    cost = one.values[f"cpu_{role}"] * work.size / one.values[work.name]
                    found.setdefault(role, []).append(cost * work.scale)
        return {role: statistics.median(costs) for role, costs in found.items()}

    def errors(self) -> list[str]:
        """What went wrong, a line each."""
        return [f"{one.stack}, {one.scenario}: {error}" for one in self.measurements if (error := _error_of(one))]

    def _of(self, stack: str, scenario: str) -> list[Measurement]:
        return [one for one in self.measurements if (one.stack, one.scenario) == (stack, scenario)]

    # ── growth ──

    def curve(self, what: str, value: str) -> list[tuple[int, Summary]]:
        """A cost at each size, over all repeats."""
        found: dict[int, list[float]] = {}
        for one in self.measurements:
            if one.scenario == what and value in one.values:
                found.setdefault(one.size, []).append(one.values[value])
        return [(size, summarize(costs)) for size, costs in sorted(found.items())]

    def fit(self, what: str, value: str) -> Fit | None:
        """How a cost grows; None when too little was measured, or nothing that is above 0."""
        points = [(size, cost.median) for size, cost in self.curve(what, value) if cost.median > 0]
        return fit_power(*zip(*points, strict=True)) if len(points) > 1 else None

    # ── JSON ──

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **attrs.asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Results":
        """Raises ResultsError."""
        try:
            data: dict[str, Any] = json.loads(text)
            if data.pop("format") != FORMAT:
                raise ResultsError(f"not of format {FORMAT}")
            fields: dict[str, Any] = {
                **data,
                "machine": Machine(**data["machine"]),
                "settings": Settings(**data["settings"]),
                "measurements": [Measurement(**one) for one in data["measurements"]],
            }
            return cls(**fields)
        except (ValueError, TypeError, KeyError, AttributeError) as exc:
            raise ResultsError(f"these are no results of a benchmark: {exc!r}") from exc


def read_results(paths: Sequence[Path]) -> list[Results]:
    """Raises OSError and ResultsError, which names the file."""
    found: list[Results] = []
    for path in paths:
        try:
            found.append(Results.from_json(path.read_text()))
        except (ResultsError, UnicodeDecodeError) as exc:
            raise ResultsError(f"{path}: {exc}") from exc
    return found
