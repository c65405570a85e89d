"""What the demo shows while it runs: who is up, who is attached where, how far the downloads are."""

from collections.abc import Mapping

import attrs
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn
from rich.table import Table

REFRESH_PER_SECOND = 8


@attrs.define
class Row:
    """One process in the table."""

    name: str
    what: str
    pid: int
    peer: str = ""
    attached: str = ""
    state: str = "starting"


class View:
    """The live table; plain lines when the output is no terminal.

    Args:
        console: where to draw.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows: dict[str, Row] = {}
        self._names: dict[str, str] = {}
        self._progress = Progress(
            TextColumn("{task.description:<28}"),
            BarColumn(40),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=console,
        )
        self._bars: dict[str, TaskID] = {}
        self.live = Live(self._draw(), console=console, refresh_per_second=REFRESH_PER_SECOND, transient=False)

    def add(self, name: str, what: str, pid: int) -> None:
        """A process has been started."""
        self._rows[name] = Row(name, what, pid)
        self._changed(f"{name}: started, pid {pid}")

    def up(self, name: str, peer: str = "", attached: list[str] | None = None, state: str = "up") -> None:
        """A process is up. `attached` are the peer IDs of its routers."""
        row = self._rows[name]
        row.peer, row.state = peer or row.peer, state
        if peer:
            self._names[peer] = name
        if attached is not None:
            row.attached = ", ".join(sorted(self._names.get(router, router) for router in attached))
        where = f", attached to {row.attached}" if row.attached else ""
        self._changed(f"{name}: {state}{where}")

    def state(self, name: str, state: str) -> None:
        """Say what a process is doing."""
        self._rows[name].state = state
        self._changed(f"{name}: {state}")

    def progressed(self, what: str, done: int, total: int) -> None:
        """A download has come this far, in bytes."""
        if what not in self._bars:
            self._bars[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._bars[what], completed=done)
        self._redraw()

    def _changed(self, line: str) -> None:
        if not self._console.is_terminal:
            self._console.print(line, highlight=False, soft_wrap=True)
        self._redraw()

    def _redraw(self) -> None:
        self.live.update(self._draw())

    def _draw(self) -> RenderableType:
        return Group(_table(self._rows), self._progress) if self._console.is_terminal else ""


def _table(rows: Mapping[str, Row]) -> Table:
    table = Table(title="agentmesh demo", title_justify="left")
    for column in ("process", "what it does", "pid", "peer", "attached to", "state"):
        table.add_column(column, no_wrap=True)
    for row in rows.values():
        peer = f"…{row.peer[-8:]}" if row.peer else ""
        table.add_row(row.name, row.what, str(row.pid), peer, row.attached, row.state)
    return table
