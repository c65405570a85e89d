"""Results as tables: for the terminal, and in Markdown."""

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from agentmesh.errors import MeshError
from benchmarks.figures import HAPROXY_TLS, SCENARIOS, TLS, WORK, Figure
from benchmarks.growth import COSTS, Cost
from benchmarks.results import Results
from benchmarks.stacks.known import AGENTMESH, STACKS
from benchmarks.summary import Summary

NO_FIGURE = "–"
CPU_ROLES = "caller · router · server"
GROWTH_COLUMNS = ("with", "cost", "at", "exponent", "R²")
REFERENCES = {TLS: "TLS", HAPROXY_TLS: "HAProxy"}
BEGIN, END = "<!-- {kind}: written by python -m benchmarks -->", "<!-- end of {kind} -->"


class MarkdownError(MeshError):
    """A file in which a table has no place."""


def show_number(value: float) -> str:
    """Three digits that mean something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def show_range(summary: Summary, before: str, after: str) -> str:
    """Nothing where there is no range."""
    if summary.low == summary.high:
        return ""
    return f"{before}{show_number(summary.low)}–{show_number(summary.high)}{after}"


def title_of(stack: str) -> str:
    return STACKS[stack].title if stack in STACKS else stack


# ── the terminal ──


def print_results(console: Console, results: Results) -> None:
    """Everything that a run found, what went wrong included."""
    if results.kind == "growth":
        console.print(_growth_table(results))
    else:
        for scenario in results.settings.scenarios:
            console.print(f"\n[bold]{scenario}[/]: {SCENARIOS[scenario]}", highlight=False)
            console.print(_scenario_table(results, scenario))
        console.print(f"CPU is that of {CPU_ROLES}.", style="dim", highlight=False)
    for line in remarks(results):
        console.print(line, style="dim", highlight=False)
    for line in results.errors():
        console.print(f"failed: {line}", style="red", highlight=False, markup=False)


def _scenario_table(results: Results, scenario: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("", no_wrap=True)
    figures = [figure for figure in results.figures if figure.scenario == scenario]
    between = "\n" if len(figures) > 1 else " "  # more than one range does not fit into a line
    for figure in figures:
        table.add_column(f"{figure.label},\n{figure.unit}", justify="right", overflow="fold")
        if figure.reference:
            table.add_column(f"of\n{REFERENCES[figure.reference]}", justify="right")
    if scenario in WORK:
        table.add_column(f"CPU,\n{WORK[scenario].unit}", justify="right", no_wrap=True)
    for stack in results.stacks:
        cells = [cell for figure in figures for cell in _cells(results, stack, figure, between)]
        cells += [_cpu(results, stack, scenario, "·")] if scenario in WORK else []
        if any(cell != NO_FIGURE for cell in cells):
            table.add_row(stack, *cells, style="bold" if stack == AGENTMESH.name else "")
    return table


def _cells(results: Results, stack: str, figure: Figure, between: str) -> list[str]:
    summary, ratio = results.summary(stack, figure), results.ratio(stack, figure)
    shown = f"{show_number(summary.median)}{show_range(summary, f'{between}[dim]', '[/]')}" if summary else NO_FIGURE
    return [shown, f"{ratio:.2f}" if ratio is not None else NO_FIGURE] if figure.reference else [shown]


def _growth_table(results: Results) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in GROWTH_COLUMNS:
        table.add_column(name, justify="left" if name in ("with", "cost", "at") else "right")
    for row in _growth_rows(results, "  "):
        table.add_row(*row)
    return table


def _growth_rows(results: Results, between: str) -> list[list[str]]:
    return [
        [cost.what, f"{cost.title}, {cost.unit}", _at(curve, cost, between), *_fit_of(results, cost)]
        for cost in COSTS
        if (curve := results.curve(cost.what, cost.value))
    ]


def _at(curve: Sequence[tuple[int, Summary]], cost: Cost, between: str) -> str:
    return between.join(
        f"{size}:\N{NO-BREAK SPACE}{show_number(summary.median * cost.scale)}" for size, summary in curve
    )


def _fit_of(results: Results, cost: Cost) -> tuple[str, str]:
    fit = results.fit(cost.what, cost.value)
    return (f"{fit.exponent:.2f}", f"{fit.r2:.2f}") if fit else (NO_FIGURE, NO_FIGURE)


def remarks(results: Results) -> list[str]:
    """What figures are to be read with."""
    machine, settings = results.machine, results.settings
    versions = ", ".join(f"{name} {number}" for name, number in machine.versions.items())
    lines = [
        f"{machine.describe()}; {machine.describe_load()}.",
        f"{versions}.",
        f"{results.when[:10]}, {results.took:.0f} s in all. Median and range of {settings.repeat}, of "
        f"{settings.seconds:g} s each; MB are 10^6 bytes.",
    ]
    if open_ones := [stack for stack in results.stacks if stack in STACKS and STACKS[stack].encryption == "none"]:
        lines.append(f"Without encryption: {', '.join(map(title_of, open_ones))}.")
    if results.kind != "growth":
        lines.append("The second number is the median over that of direct TLS, in S8 over that of TLS through HAProxy.")
    if machine.is_busy:
        lines.append("The machine was busy: only ratios within this run mean something, and those are noisy.")
    if not results.is_whole:
        lines.append("The run was broken off: it did not measure everything.")
    lines += [f"{name} was left out. {reason}" for name, reason in results.left_out.items()]
    return lines


# ── Markdown ──


def markdown(results: Results) -> str:
    """The tables of a run, with the remarks below."""
    if results.kind == "growth":
        tables = [[list(GROWTH_COLUMNS), *_growth_rows(results, "<br>")]]
    else:
        tables = [_scenario_rows(results), _cpu_rows(results)]
    failed = [f"Failed: {line}" for line in results.errors()]
    notes = "\n".join(f"- {line}" for line in [*remarks(results), *failed])
    return "\n\n".join([*map(_markdown_table, tables), notes]) + "\n"


def _markdown_table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def _scenario_rows(results: Results) -> list[list[str]]:
    head = ["", *(title_of(stack) for stack in results.stacks)]
    return [
        head,
        *(
            [figure.title, *(_markdown_cell(results, stack, figure) for stack in results.stacks)]
            for figure in results.figures
        ),
    ]


def _cpu_rows(results: Results) -> list[list[str]]:
    """Who works: the largest of the three bounds a figure, unless all of them together fill the machine."""
    measured = [name for name in results.settings.scenarios if name in WORK]
    head = [f"CPU of {CPU_ROLES}", *(title_of(stack) for stack in results.stacks)]
    rows = [
        [f"{name}, {WORK[name].unit}", *(_cpu(results, stack, name, " · ") for stack in results.stacks)]
        for name in measured
    ]
    return [head, *rows]


def _cpu(results: Results, stack: str, scenario: str, between: str) -> str:
    """The crowd is the caller of S6."""
    costs = results.cpu(stack, scenario)
    shown = [costs.get(role) for role in ("crowd" if "crowd" in costs else "caller", "router", "server")]
    return between.join(NO_FIGURE if cost is None else show_number(cost) for cost in shown) if costs else NO_FIGURE


def _markdown_cell(results: Results, stack: str, figure: Figure) -> str:
    summary, ratio = results.summary(stack, figure), results.ratio(stack, figure)
    if summary is None:
        return NO_FIGURE
    shown = f"{show_number(summary.median)}{show_range(summary, ' [', ']')}"
    return f"{shown}<br>**{ratio:.2f}**" if ratio is not None and stack != figure.reference else shown


def write_markdown(path: Path, results: Results) -> None:
    """Put the tables between their two marks in a file, or into a new file.

    Raises:
        MarkdownError: the file is there and has no such marks.
        OSError: it cannot be read or written.
    """
    begin, end = BEGIN.format(kind=results.kind), END.format(kind=results.kind)
    text = path.read_text() if path.exists() else f"{begin}\n{end}\n"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise MarkdownError(f"{path}: the tables go between the lines {begin} and {end}, which are not there")
    path.write_text(f"{before}{begin}\n\n{markdown(results)}\n{end}{after}")
