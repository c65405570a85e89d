"""`python -m benchmarks`: the command line."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
import trio
from click.core import ParameterSource
from rich.console import Console

from agentmesh.cli.params import duration
from agentmesh.cli.program import ProgramGroup, errors_in_one_line
from benchmarks.charts import check_charts, write_charts
from benchmarks.figures import SCENARIOS
from benchmarks.growth import SIZES, run_growth
from benchmarks.machine import look_at_machine
from benchmarks.progress import watching
from benchmarks.results import Results, Settings, read_results
from benchmarks.run import new_results, run, steps_of
from benchmarks.stacks.known import AGENTMESH, BASELINES, NONE, choose
from benchmarks.tables import print_results, write_markdown

F = TypeVar("F", bound=Callable[..., Any])
EPILOG = "\n".join(
    [
        "\b\nScenarios:",
        *(f"  {name:<4} {text}" for name, text in SCENARIOS.items()),
        "\n\b\nBaselines:",
        *(f"  {stack.name:<18} {stack.title}; encryption: {stack.encryption}" for stack in BASELINES),
    ]
)


def output_options(command: F) -> F:
    """Give a command --json, --markdown and --charts."""
    for option in (
        click.option(
            "--charts",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="FOLDER",
            help="Draw PNG and SVG here.",
        ),
        click.option(
            "--markdown",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Write the table into this file, between its marks if it is there.",
        ),
    ):
        command = option(command)
    return command


def run_options(command: F) -> F:
    """Give a command --repeat, --seconds, --deadline and --json, and the output options."""
    for option in (
        output_options,
        click.option(
            "--json",
            "json_path",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Write everything that was found here; `show` reads it.",
        ),
        click.option(
            "--deadline",
            type=duration,
            default="40m",
            show_default=True,
            help="Break off after so long; what was found by then is shown.",
        ),
        click.option(
            "--seconds",
            type=click.FloatRange(0, min_open=True),
            default=1.5,
            show_default=True,
            help="How long each measurement takes.",
        ),
        click.option(
            "--repeat",
            type=click.IntRange(1),
            default=3,
            show_default=True,
            help="How often each is made; medians are shown.",
        ),
    ):
        command = option(command)
    return command


@click.group("benchmarks", cls=ProgramGroup, invoke_without_command=True, epilog=EPILOG)
@click.option(
    "--scenario",
    "scenarios",
    type=click.Choice(list(SCENARIOS)),
    multiple=True,
    metavar="NAME",
    help="What to measure, of the list below; repeat it for more.  [default: all]",
)
@click.option(
    "--baseline",
    "baselines",
    type=click.Choice([*(stack.name for stack in BASELINES), NONE]),
    multiple=True,
    metavar="NAME",
    help="What to measure beside agentmesh in the same run, of the list below, or none; repeat it for more.  "
    "[default: all that can run here]",
)
@click.option("--members", type=click.IntRange(1), default=500, show_default=True, help="Members that attach in S6.")
@run_options
@click.pass_context
def main(
    ctx: click.Context,
    scenarios: tuple[str, ...],
    baselines: tuple[str, ...],
    members: int,
    repeat: int,
    seconds: float,
    deadline: float,
    json_path: Path | None,
    markdown: Path | None,
    charts: Path | None,
) -> None:
    """Measure agentmesh beside what else moves bytes from one program to another.

    A router, a server and a caller run as three processes on loopback; every baseline does the same in the same run.
    What counts is the ratio to direct TLS: the rest depends on the machine.
    """
    if ctx.invoked_subcommand is not None:
        _refuse_own_options(ctx, ctx.invoked_subcommand)
        return
    with errors_in_one_line():
        if charts:
            check_charts()
        stacks, left_out = choose(baselines)
        chosen = tuple(name for name in SCENARIOS if not scenarios or name in scenarios)
        settings = Settings(chosen, repeat, seconds, members)
        results = _begin("scenarios", settings, stacks)
        results.left_out |= left_out
        with watching(_progress(), steps_of(stacks, settings)) as watch:
            trio.run(run, stacks, results, watch, deadline)
        _finish(results, json_path, markdown, charts)


def _refuse_own_options(ctx: click.Context, command: str) -> None:
    """What stands before a command would do nothing there: say so."""
    for param in ctx.command.params:
        if param.name and ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{param.opts[0]} goes behind {command}, if it is one of its options", ctx)


@main.command()
@click.option(
    "--what",
    type=click.Choice(list(SIZES)),
    multiple=True,
    help="What is to grow; repeat it for more.  [default: all]",
)
@click.option(
    "--size",
    "sizes",
    type=click.IntRange(2),
    multiple=True,
    help="A size instead of the usual ones; repeat it for more.",
)
@run_options
def grow(
    what: tuple[str, ...],
    sizes: tuple[int, ...],
    repeat: int,
    seconds: float,
    deadline: float,
    json_path: Path | None,
    markdown: Path | None,
    charts: Path | None,
) -> None:
    """Measure how cost grows with size, at three sizes each."""
    with errors_in_one_line():
        if charts:
            check_charts()
        chosen = {name: sizes or usual for name, usual in SIZES.items() if not what or name in what}
        settings = Settings((), repeat, seconds, 0)
        results = _begin("growth", settings, [AGENTMESH])
        steps = repeat * sum(map(len, chosen.values()))
        with watching(_progress(), steps) as watch:
            trio.run(partial(run_growth, results, chosen, watch, deadline))
        _finish(results, json_path, markdown, charts)


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@output_options
def show(files: tuple[Path, ...], markdown: Path | None, charts: Path | None) -> None:
    """Show results that --json wrote, as tables and charts."""
    with errors_in_one_line():
        for results in read_results(files):
            _finish(results, None, markdown, charts)


def _progress() -> Console:
    return Console(stderr=True)


def _begin(kind: str, settings: Settings, stacks: Sequence[Any]) -> Results:
    """Look at the machine, and say so when others are using it."""
    machine = look_at_machine()
    console = _progress()
    console.print(f"{machine.describe()}; {machine.describe_load()}", highlight=False, style="dim")
    if machine.is_busy:
        console.print("This machine is busy. Only the ratios of this run will mean something.", style="yellow")
    return new_results(kind, machine, settings, stacks)


def _finish(results: Results, json_path: Path | None, markdown: Path | None, charts: Path | None) -> None:
    """JSON first: what was measured is not lost when something else fails."""
    if json_path:
        json_path.write_text(results.to_json())
    print_results(Console(), results)
    if markdown:
        write_markdown(markdown, results)
    for path in write_charts(charts, results) if charts else ():
        _progress().print(f"drawn: {path}", highlight=False, style="dim")
