"""`python -m benchmarks`: the command line."""

import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import click
import trio
from click.core import ParameterSource

from agentmesh.cli.program import ProgramGroup, errors_in_one_line, run_program
from benchmarks.figures import SCENARIOS
from benchmarks.growth import SIZES, run_growth
from benchmarks.machine import look_at_machine
from benchmarks.options import Output, output_options, run_options
from benchmarks.pool import pool
from benchmarks.progress import progress_console, watching
from benchmarks.results import Results, Settings, read_results
from benchmarks.run import Watch, new_results, run, steps_of
from benchmarks.stacks.known import AGENTMESH, BASELINES, NONE, choose

INTERRUPTED = 128 + signal.SIGINT
EPILOG = "\n".join(
    [
        "\b\nScenarios:",
        *(f"  {name:<4} {text}" for name, text in SCENARIOS.items()),
        "\n\b\nBaselines:",
        *(f"  {stack.name:<18} {stack.title}; encryption: {stack.encryption}" for stack in BASELINES),
    ]
)


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
@click.option(
    "--members", type=click.IntRange(1), default=500, show_default=True, help="Members that attach in S6 and S7."
)
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
) -> int:
    """Measure agentmesh beside what else moves bytes from one program to another.

    A router, a server and a caller run as three processes on loopback; every baseline does the same in the same run.
    What counts is the ratio to direct TLS: the rest depends on the machine.
    """
    if ctx.invoked_subcommand is not None:
        _refuse_own_options(ctx, ctx.invoked_subcommand)
        return 0
    output = Output(json_path, markdown, charts)
    with errors_in_one_line():
        output.check()
        stacks, left_out = choose(baselines)
        chosen = tuple(name for name in SCENARIOS if not scenarios or name in scenarios)
        settings = Settings(chosen, repeat, seconds, members)
        results = _begin("scenarios", settings, stacks)
        results.left_out |= left_out
        steps = steps_of(stacks, settings)
        return _measure(results, steps, lambda watch: run(stacks, results, watch, deadline), output)


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
) -> int:
    """Measure how cost grows with size, at three sizes each."""
    output = Output(json_path, markdown, charts)
    with errors_in_one_line():
        output.check()
        chosen = {name: sizes or usual for name, usual in SIZES.items() if not what or name in what}
        results = _begin("growth", Settings((), repeat, seconds, 0), [AGENTMESH])
        steps = repeat * sum(map(len, chosen.values()))
        return _measure(results, steps, lambda watch: run_growth(results, chosen, watch, deadline), output)


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@output_options
def show(files: tuple[Path, ...], markdown: Path | None, charts: Path | None) -> None:
    """Show results that --json wrote, as tables and charts."""
    with errors_in_one_line():
        for results in read_results(files):
            Output(None, markdown, charts).show(results)


main.add_command(pool)


def _begin(kind: str, settings: Settings, stacks: Sequence[Any]) -> Results:
    """Look at the machine, and say so when others are using it."""
    machine = look_at_machine()
    console = progress_console()
    console.print(f"{machine.describe()}; {machine.describe_load()}", highlight=False, style="dim")
    if machine.is_busy:
        console.print("This machine is busy. Only the ratios of this run will mean something.", style="yellow")
    return new_results(kind, machine, settings, stacks)


def _measure(results: Results, steps: int, measure: Callable[[Watch], Awaitable[None]], output: Output) -> int:
    """Measure, and show what was found, also when SIGINT or SIGTERM came in the middle. The exit status."""
    interrupted: list[bool] = []

    async def until_told(stop: trio.Event) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_at, stop, nursery.cancel_scope)
            await measure(watch)
            nursery.cancel_scope.cancel()
        interrupted.append(stop.is_set())

    with watching(steps) as watch:
        run_program(until_told)
    output.show(results)
    return INTERRUPTED if any(interrupted) else 0


async def _cancel_at(stop: trio.Event, scope: trio.CancelScope) -> None:
    await stop.wait()
    scope.cancel()
