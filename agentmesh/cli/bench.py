"""`agentmesh bench`."""

import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
import click
import trio
from rich.console import Console
from rich.table import Table

from agentmesh.bench.join import MEMBERS_PER_PROCESS, JoinSettings, join
from agentmesh.bench.member import Plan
from agentmesh.bench.report import JoinReport, ReportError, read_report
from agentmesh.bench.summary import SHARES, Distribution, Row, rows_by
from agentmesh.bench.worker import LEAVE_TIMEOUT
from agentmesh.cli.membership import label, router_options
from agentmesh.cli.params import duration, logging_options, secret_file
from agentmesh.cli.program import run_program
from agentmesh.services import SERVICE_TYPES

INTERRUPTED = 128 + signal.SIGINT
STANDARD_OUTPUT = "-"


def called(text: str) -> str:
    """`TYPE/NAME` of a service."""
    kind, slash, name = text.partition("/")
    if not slash or not name or kind not in SERVICE_TYPES:
        raise click.BadParameter(f"{text!r} is no TYPE/NAME; TYPE is one of {', '.join(sorted(SERVICE_TYPES))}")
    return text


def writable(_: click.Context, __: click.Parameter, path: str | None) -> str | None:
    """Refuse now what could not be written when all is done."""
    if path is not None and path != STANDARD_OUTPUT:
        folder = Path(path).resolve().parent
        if not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise click.BadParameter(f"{path}: no folder to write it in")
    return path


@click.group("bench")
def command() -> None:
    """Have many members join a mesh, and see how it bears them."""


@command.command("join")
@click.option(
    "--control-plane",
    default="http://127.0.0.1:8080",
    show_default=True,
    metavar="URL",
    envvar="AGENTMESH_CONTROL_PLANE",
    show_envvar=True,
    help="URL of the control plane of the mesh.",
)
@click.option(
    "--bootstrap-token-path",
    "token",
    type=secret_file,
    required=True,
    metavar="FILE",
    envvar="AGENTMESH_BOOTSTRAP_TOKEN_PATH",
    show_envvar=True,
    help="A file with a bootstrap token for nodes, good for at least --count members.",
)
@click.option("--count", type=click.IntRange(1), required=True, help="How many members.")
@click.option(
    "--ramp",
    type=click.FloatRange(0),
    default=20.0,
    show_default=True,
    help="How many start in a second; 0: all at once.",
)
@click.option(
    "--hold",
    type=duration,
    default="0s",
    show_default=True,
    help="How long they stay once all are there; who loses its routers meanwhile is told.",
)
@click.option(
    "--service",
    type=called,
    metavar="TYPE/NAME",
    help="What each member calls once it is ready, until it is answered.",
)
@router_options("each holds")
@click.option(
    "--join-timeout",
    type=duration,
    default="15m",
    show_default=True,
    help="How long a member has to become ready, and as long again to be answered.",
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    help=f"How many processes the members are spread over.  [default: one for {MEMBERS_PER_PROCESS} members]",
)
@click.option(
    "--label",
    "labels",
    type=label,
    multiple=True,
    metavar="KEY=VALUE",
    help="What the report calls the run, such as step=3; repeat it for more. Members have no labels of it.",
)
@click.option(
    "--resident-marker",
    callback=writable,
    metavar="FILE",
    help="A file to make when all members are there and the hold begins.",
)
@click.option(
    "--out",
    callback=writable,
    default=STANDARD_OUTPUT,
    show_default="standard output",
    metavar="FILE",
    help="Where the report goes, in JSON.",
)
@logging_options
def join_command(
    control_plane: str,
    token: str,
    count: int,
    ramp: float,
    hold: float,
    service: str | None,
    routers: int,
    router_selector: tuple[tuple[str, str], ...],
    router_prefer: tuple[tuple[str, str], ...],
    join_timeout: float,
    processes: int | None,
    labels: tuple[tuple[str, str], ...],
    resident_marker: str | None,
    out: str,
) -> int:
    """Have many members join, stay for a time, and leave; report how that went.

    They are tasks of a few processes, each with a key, a credential and sessions of its own. Ctrl-C ends it early; the
    report has what was reached. Exit status 0 means that every member came and stayed.
    """
    selector, prefer = dict(router_selector), dict(router_prefer)
    plan = Plan(control_plane, token, routers, selector, prefer, service, count, ramp, join_timeout)
    settings = JoinSettings(plan, hold, processes or 0, marking(resident_marker))
    reports: list[JoinReport] = []
    stopped = trio.Event()
    run_program(partial(_join, settings, dict(labels), out, reports, stopped), stop_timeout=LEAVE_TIMEOUT + 5)
    if stopped.is_set():
        return INTERRUPTED
    return 0 if all(report.is_good for report in reports) else 1


def marking(path: str | None) -> Callable[[], object]:
    """What makes the file that says that all are there; one of an earlier run is gone first."""
    if path is None:
        return lambda: None
    Path(path).unlink(missing_ok=True)
    return partial(Path(path).write_text, "")


async def _join(
    settings: JoinSettings,
    labels: dict[str, str],
    out: str,
    reports: list[JoinReport],
    stopped: trio.Event,
    stop: trio.Event,
) -> None:
    report = attrs.evolve(await join(settings, stop), labels=labels)
    reports.append(report)
    if stop.is_set():
        stopped.set()
    write(report.to_json(), out)


def write(text: str, out: str) -> None:
    """All of it, or nothing: a file that is half written would be read as a whole one."""
    if out == STANDARD_OUTPUT:
        click.echo(text, nl=False)
        return
    part = Path(f"{out}.part")
    part.write_text(text)
    part.replace(out)


@command.command("summary")
@click.argument("files", metavar="REPORT…", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--by", metavar="LABEL", help="A row for each value of this label, besides the one of all reports.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
def summary_command(files: tuple[Path, ...], by: str | None, as_json: bool) -> None:
    """Reports of several runs as one: how soon their members were ready and answered, and who fell out."""
    try:
        rows = rows_by(by, [read_report(path) for path in files])
    except ReportError as exc:
        raise click.ClickException(str(exc)) from exc
    if as_json:
        click.echo(json.dumps([row.to_json() for row in rows], indent=2))
        return
    console = Console()
    console.print(table_of(rows))
    for kind, counts in (("errors", rows[-1].report.errors), ("calls", rows[-1].report.call_errors)):
        for why, count in counts.items():
            console.print(f"{kind}: {count} × {why}", highlight=False, markup=False)


def table_of(rows: list[Row]) -> Table:
    """A column for each row."""
    table = Table()
    for name in ("", *(row.name for row in rows)):
        table.add_column(name, justify="right" if name else "left")
    lines: dict[str, list[float]] = {
        "reports": [row.reports for row in rows],
        "members": [row.report.count for row in rows],
        "completed": [row.report.completed for row in rows],
        "failed": [row.report.failed for row in rows],
        "seconds": [row.report.elapsed_seconds for row in rows],
    }
    for name, numbers in lines.items():
        table.add_row(name, *(f"{number:,.0f}" for number in numbers))
    _add_distribution(table, "ready, ms", [row.ready_ms for row in rows])
    _add_distribution(table, "first call, ms", [row.first_call_ms for row in rows])
    table.add_row("calls made", *(f"{row.report.call_attempts:,}" for row in rows))
    for name in ("resident", "min_ready", "flaps", "members_flapped", "members_not_ready_at_end", "members_exited"):
        table.add_row(f"hold: {name}", *(_held(row, name) for row in rows))
    return table


def _add_distribution(table: Table, title: str, found: list[Distribution]) -> None:
    for name in SHARES:
        table.add_row(f"{title}, {name}", *(f"{one.values[name]:,.0f}" if one.count else "-" for one in found))


def _held(row: Row, name: str) -> str:
    return f"{getattr(row.report.hold, name):,}" if row.report.hold else "-"
