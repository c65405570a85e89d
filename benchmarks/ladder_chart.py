"""A ladder as a chart: memory, readiness and sessions, by members."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.charts import MARKERS, SERIES, save_figure
from benchmarks.steps import MIB, Model, Snapshot, Step

WIDTH, HEIGHT = 12.0, 3.6  # inches
NAME = "ladder"

Line = tuple[str, Callable[[Step], float]]

MEMORY: Sequence[Line] = (
    ("all routers", lambda step: step.after.router_memory / MIB),
    ("all members", lambda step: step.after.members.memory / MIB),
    ("control plane", lambda step: step.after.control_plane.memory / MIB),
)
READINESS: Sequence[Line] = (
    ("99 of 100", lambda step: step.ready_ms.values["p99"] / 1000),
    ("the median", lambda step: step.ready_ms.values["p50"] / 1000),
    ("first call, the median", lambda step: step.first_call_ms.values["p50"] / 1000),
)
SESSIONS: Sequence[Line] = (
    ("the router with most", lambda step: max(router.inbound for router in step.after.routers)),
    ("the one with least", lambda step: min(router.inbound for router in step.after.routers)),
)


def write_chart(folder: Path, steps: Sequence[Step], wanted: int) -> list[Path]:
    """Draw a ladder into `folder`: as `save_figure`.

    Args:
        steps: one at least.
        wanted: routers that a member holds.
    """
    return save_figure(folder, NAME, lambda plt: _draw_ladder(plt, steps, wanted))


def _draw_ladder(plt: Any, steps: Sequence[Step], wanted: int) -> Any:
    figure, (memory, readiness, sessions) = plt.subplots(1, 3, figsize=(WIDTH, HEIGHT), layout="constrained")
    _draw(memory, "memory", "MiB", steps, MEMORY)
    _draw(readiness, "ready", "seconds since a member's start", steps, READINESS)
    _draw(sessions, "sessions of a router", "", steps, SESSIONS)
    _draw_model(sessions, steps, wanted)
    for panel in (memory, readiness, sessions):
        panel.legend(frameon=False)
    return figure


def _draw(panel: Any, title: str, unit: str, steps: Sequence[Step], lines: Sequence[Line]) -> None:
    members = [step.resident for step in steps]
    for (name, figure), colour, marker in zip(lines, SERIES, MARKERS, strict=False):
        panel.plot(members, [figure(step) for step in steps], color=colour, marker=marker, label=name, linewidth=1)
    panel.set_title(title, loc="left", fontweight="bold")
    panel.set_xlabel("members")
    panel.set_ylabel(unit)
    panel.set_ylim(bottom=0)


def _draw_model(panel: Any, steps: Sequence[Step], wanted: int) -> None:
    """F × K / N, as a line without marks."""

    def expected(step: Step) -> float:
        at: Snapshot = step.after
        return Model(step.resident, wanted, len(at.routers), at.routers[0].high_watermark).sessions_per_router

    panel.plot(
        [step.resident for step in steps],
        [expected(step) for step in steps],
        color="#333333",
        linestyle="--",
        linewidth=1,
        label="members × held / routers",
    )
