"""Options that several commands have, and what becomes of results."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click
from rich.console import Console

from agentmesh.cli.params import duration
from benchmarks.charts import check_charts, write_charts
from benchmarks.pool_report import POOL, draw_pool, print_pool
from benchmarks.progress import progress_console
from benchmarks.results import Results
from benchmarks.tables import print_results, write_markdown

F = TypeVar("F", bound=Callable[..., Any])


@attrs.frozen
class Output:
    """Where results go, beside the terminal."""

    json: Path | None
    markdown: Path | None
    charts: Path | None

    def check(self) -> None:
        """Raises ChartsError: there can be no charts. Better before a run than after it."""
        if self.charts:
            check_charts()

    def show(self, results: Results) -> None:
        """JSON first: what was measured is not lost when something else fails. Half a run goes into no document."""
        if self.json:
            self.json.write_text(results.to_json())
        is_pool = results.kind == POOL
        (print_pool if is_pool else _print)(results)
        if self.markdown and results.is_whole and not is_pool:
            write_markdown(self.markdown, results)
        draw = draw_pool if is_pool else write_charts
        for path in draw(self.charts, results) if self.charts and results.is_whole else ():
            progress_console().print(f"drawn: {path}", highlight=False, style="dim")


def _print(results: Results) -> None:
    print_results(Console(), results)


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
