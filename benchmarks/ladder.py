"""How a mesh bears more and more members: a ladder of steps, each on a mesh that carries those before it.

    python -m benchmarks.ladder [--members 300] [--step 100] [--routers 4] [--wanted 2] [--charts docs/performance]

The control plane, the routers and a member that serves something are programs of their own; the members of a step are
tasks of a few processes (`agentmesh bench join`), come one by one, call that service until they are answered, and stay.
Before and after each step the control plane and every router are read at /metrics, and the kernel for what they use.
Ctrl-C ends it early; the steps that were climbed are shown.
"""

import json
import tempfile
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click
import trio
from rich.console import Console
from rich.table import Table

from agentmesh.bench.limits import check_limits, raise_files, read_limits
from agentmesh.cli.params import duration
from agentmesh.cli.program import run_program
from agentmesh.runtime.nursery import open_background
from benchmarks.charts import check_charts
from benchmarks.climbing import Mesh, Settings
from benchmarks.ladder_chart import write_chart
from benchmarks.machine import look_at_machine
from benchmarks.processes import WorkerError
from benchmarks.progress import progress_console
from benchmarks.steps import Step, as_json, holds_of, lines_of


@attrs.define
class Climb:
    """A ladder as far as it was climbed.

    Attributes:
        steps: that were climbed.
        why: why there are no more; "" when it was climbed to the top.
    """

    steps: list[Step] = attrs.Factory(list[Step])
    why: str = ""

    @property
    def is_good(self) -> bool:
        """Whether the top was reached, every member came, and none fell out."""
        return not self.why and all(step.report is not None and step.report.is_good for step in self.steps)


async def climb(settings: Settings, folder: Path, found: Climb, stop: trio.Event) -> None:
    """Climb until the top, a step whose members do not come, or `stop`; then have all members leave.

    Args:
        folder: where programs keep what they have, and log.
        found: is filled in.
    """
    async with open_background() as nursery, AsyncExitStack() as stack:
        mesh, resident = Mesh(settings, folder, stack), 0
        with trio.CancelScope() as climbing:
            nursery.start_soon(_cancel_at, stop, climbing)
            try:
                await mesh.start(nursery)
                for number, count in enumerate(settings.counts, 1):
                    found.steps.append(await mesh.climb(number, resident, count))
                    resident += count
                    progress_console().print(f"{resident} of {settings.members} members", style="dim", highlight=False)
            except WorkerError as exc:
                found.why = str(exc)
        found.why = found.why or ("interrupted" if climbing.cancelled_caught else "")
        reports = await mesh.leave()
        found.steps[:] = [attrs.evolve(step, report=report) for step, report in zip(found.steps, reports, strict=False)]


async def _cancel_at(stop: trio.Event, scope: trio.CancelScope) -> None:
    await stop.wait()
    scope.cancel()


def show(found: Climb, settings: Settings) -> None:
    title = f"{settings.routers} routers, {settings.wanted} of them for each member"
    table = Table(title=title)
    for column in ("", *(f"step {step.number}" for step in found.steps)):
        table.add_column(column, justify="right" if column else "left")
    for name, texts in lines_of(found.steps, settings.wanted) if found.steps else ():
        table.add_row(name, *texts)
    console = Console()
    console.print(table)
    held = Table(title="members of each step, until the ladder was left")
    holds = holds_of(found.steps)
    for column in ("step", *(holds[0][1] if holds else ())):
        held.add_column(column)
    for number, hold in holds:
        held.add_row(number, *map(_shown, hold.values()))
    console.print(held)
    if found.why:
        console.print(f"not to the top: {found.why}", highlight=False, markup=False)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {figure:,.0f}" for name, figure in value.items())  # pyright: ignore
    return f"{value:,.0f}"


@click.command("ladder", help=__doc__)
@click.option("--members", type=click.IntRange(1), default=300, show_default=True, help="Members at the top.")
@click.option("--step", type=click.IntRange(1), default=100, show_default=True, help="Members of each step.")
@click.option("--routers", type=click.IntRange(1), default=4, show_default=True, help="Routers that there are.")
@click.option("--wanted", type=click.IntRange(1), default=2, show_default=True, help="Routers that a member holds.")
@click.option("--high-watermark", type=click.IntRange(2), default=4000, show_default=True, help="Of each router.")
@click.option("--ramp", default=20.0, show_default=True, help="Members that start in a second; 0: all at once.")
@click.option("--settle", type=duration, default="5s", show_default=True, help="Wait after a step, before it is read.")
@click.option(
    "--enroll-rate", default=200.0, show_default=True, help="Enrollments a second that the control plane takes."
)
@click.option(
    "--join-timeout", type=duration, default="15m", show_default=True, help="How long a member has to become ready."
)
@click.option("--calls/--no-calls", default=True, show_default=True, help="Have each member call a service.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Where to write all of it.")
@click.option(
    "--charts", type=click.Path(path_type=Path), metavar="FOLDER", help="Draw ladder.png and ladder.svg here."
)
@click.option(
    "--folder", type=click.Path(path_type=Path), metavar="FOLDER", help="Keep logs, reports and databases here."
)
@click.pass_context
def main(
    context: click.Context, /, json_file: Path | None, charts: Path | None, folder: Path | None, **given: Any
) -> None:
    settings, found = Settings(**given), Climb()
    if settings.wanted > settings.routers:
        raise click.UsageError("a member cannot hold more routers than there are", context)
    machine = look_at_machine()
    progress_console().print(f"{machine.describe()}; {machine.describe_load()}", highlight=False, style="dim")
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentmesh-ladder-")))
        folder.mkdir(parents=True, exist_ok=True)
        run_program(partial(_checked, settings, folder.resolve(), found, charts is not None), stop_timeout=120.0)
    show(found, settings)
    if json_file is not None:
        run = {"machine": attrs.asdict(machine), "settings": attrs.asdict(settings), "why": found.why}
        json_file.write_text(json.dumps({**run, "steps": as_json(found.steps)}, indent=2))
    if charts is not None and found.steps:
        write_chart(charts, found.steps, settings.wanted)
    context.exit(0 if found.is_good else 1)


async def _checked(settings: Settings, folder: Path, found: Climb, draws: bool, stop: trio.Event) -> None:
    """What cannot be is told now, and not when hundreds of members are there."""
    if draws:
        check_charts()
    check_limits(settings.needs(), read_limits())
    raise_files()
    await climb(settings, folder, found, stop)


if __name__ == "__main__":
    main()
