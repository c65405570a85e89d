"""What is seen while a run goes on: a bar on a terminal, a line for each measurement elsewhere."""

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from benchmarks.figures import FIGURES
from benchmarks.results import Measurement
from benchmarks.run import Watch


class Bar:
    """A `Watch` with a progress bar."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def begins(self, what: str) -> None:
        self._progress.update(self._task, description=what)

    def found(self, measurement: Measurement) -> None:
        self._progress.advance(self._task)
        if measurement.error:
            self._progress.console.print(_line(measurement), style="red", markup=False, highlight=False)


class Lines:
    """A `Watch` for what is no terminal."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._done = 0

    def begins(self, what: str) -> None:
        pass

    def found(self, measurement: Measurement) -> None:
        self._done += 1
        line = f"{self._done}/{self._total} {_line(measurement)}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def _line(measurement: Measurement) -> str:
    what = f"{measurement.stack} {measurement.size or ''} {measurement.scenario}".replace("  ", " ")
    if measurement.error:
        return f"{what}: {measurement.error}"
    shown = [
        f"{measurement.values[figure.name] * figure.scale:,.1f} {figure.unit}"
        for figure in FIGURES
        if figure.scenario == measurement.scenario and figure.name in measurement.values
    ]
    return f"{what}: {', '.join(shown)}" if shown else what


def progress_console() -> Console:
    """Standard error: standard output is for results."""
    return Console(stderr=True)


@contextmanager
def watching(total: int) -> Generator[Watch]:
    """A watch of `total` measurements, for as long as the block lasts."""
    console = progress_console()
    if not console.is_terminal:
        yield Lines(console, total)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bar(progress, progress.add_task("starting", total=total))
