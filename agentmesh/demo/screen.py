"""The scene as a picture for a terminal, however wide, and in whatever characters it has."""

from collections.abc import Iterable, Iterator, Mapping

import attrs
from rich.console import Console, ConsoleOptions, Group, OverflowMethod, RenderableType
from rich.constrain import Constrain
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from agentmesh.demo.scene import TRANSPORT_NAMES, Act, Path, Phase, Player, Scene

TITLE = "a private network of six processes on this machine"
OUTWARD = "Members dial out to routers, and are reached through them. Nobody dials a member."

MAX_WIDTH = 100  # columns; a wider terminal is left empty at its right
TITLE_FROM = 78  # columns from which the title says what it is
PICTURE_FROM = 70  # columns from which the circuit is a picture
MAX_BAR = 40
MIN_BAR = 8
FIGURES_WIDTH = 50  # that a bar leaves to what stands beside it

COLUMNS = (  # title, columns of the terminal from which it is shown, own width
    ("process", 0, 15),
    ("what it does", 78, 30),
    ("pid", 88, 7),
    ("attached to", 0, 18),
    ("over", 46, 9),
)

STYLES: Mapping[Phase, str] = {
    Phase.PENDING: "dim",
    Phase.STARTING: "yellow",
    Phase.RUNNING: "bold cyan",
    Phase.UP: "green",
    Phase.HELD: "bold green",
    Phase.FAILED: "bold red",
}


@attrs.frozen
class Glyphs:
    """The characters to draw with."""

    marks: Mapping[Phase, str]
    rule: str
    link: str
    tip: str
    left: str
    right: str
    overflow: OverflowMethod


UNICODE = Glyphs(dict(zip(Phase, "·○▶●✔✘", strict=True)), "─", "━", "▶", "╰", "╯", "ellipsis")
ASCII = Glyphs(dict(zip(Phase, ".o>*+x", strict=True)), "-", "=", ">", "\\", "/", "crop")


@attrs.frozen
class Screen:
    """The scene after so many seconds: something that rich prints."""

    scene: Scene
    elapsed: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        glyphs = ASCII if options.ascii_only else UNICODE
        width = min(options.max_width, MAX_WIDTH)
        parts = (
            _head(self.elapsed, width),
            Rule(style="dim", characters=glyphs.rule),
            _players(self.scene.players.values(), glyphs, width),
            "",
            _path(self.scene.path, glyphs, width),
            "",
            _acts(self.scene.acts.values(), glyphs, width),
        )
        yield Constrain(Group(*parts), width)


def _head(elapsed: float, width: int) -> Table:
    head = Table.grid(expand=True)
    head.add_column(ratio=1, no_wrap=True, overflow="crop")
    head.add_column(justify="right", no_wrap=True, overflow="crop")
    title = Text.assemble(("agentmesh demo", "bold"), f"   {TITLE}" if width >= TITLE_FROM else "")
    head.add_row(title, Text(f"{elapsed:.0f} s", "dim"))
    return head


def _players(players: Iterable[Player], glyphs: Glyphs, width: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    # widths from the start, so that nothing moves when more is known
    for title, from_width, min_width in COLUMNS:
        if width >= from_width:
            table.add_column(title, no_wrap=True, overflow=glyphs.overflow, min_width=min_width)
    for player in players:
        cells = (
            Text.assemble(_mark(player.phase, glyphs), " ", (player.name, "bold")),
            Text(player.what),
            Text(str(player.pid or ""), "dim"),
            Text(", ".join(player.routers), "cyan"),
            Text(TRANSPORT_NAMES.get(player.transport, "")),
        )
        shown = [cell for cell, (_, from_width, _) in zip(cells, COLUMNS, strict=True) if width >= from_width]
        table.add_row(*shown)
    return table


def _path(path: Path | None, glyphs: Glyphs, width: int) -> RenderableType:
    if path is None:
        return Text(OUTWARD, "dim")
    secret = f"encrypted end to end: {path.router} carries it and has no key to it"
    if width < PICTURE_FROM:
        return Text.assemble(
            (f"{path.caller} {glyphs.tip} {path.router} {glyphs.tip} {path.callee}", "bold"), f"\n{secret}"
        )
    link = glyphs.link * ((PICTURE_FROM - len(path.caller + path.router + path.callee) - 4) // 2)
    picture = Text.assemble(
        (path.caller, "bold"),
        (f" {link} ", "cyan"),
        path.router,
        (f" {link}{glyphs.tip} ", "cyan"),
        (path.callee, "bold"),
    )
    below = glyphs.left + f" {secret} ".center(len(picture) - 2, glyphs.rule) + glyphs.right
    return picture + Text(f"\n{below}", "dim")


def _acts(acts: Iterable[Act], glyphs: Glyphs, width: int) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=1)
    table.add_column(width=2)
    table.add_column()
    for number, act in enumerate(acts, 1):
        style = "dim" if act.phase is Phase.PENDING else ""
        table.add_row(Text(*_mark(act.phase, glyphs)), Text(str(number), style), Text(act.title, style))
        if act.figures:
            table.add_row("", "", _figures(act, width))
    return table


def _figures(act: Act, width: int) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    cells: list[RenderableType] = []
    if act.total:
        bar = max(min(width - FIGURES_WIDTH, MAX_BAR), MIN_BAR)
        grid.add_column(width=bar)
        style = STYLES[act.phase]
        cells.append(ProgressBar(act.total, act.done, bar, complete_style=style, finished_style=style))
    grid.add_column()
    grid.add_row(*cells, Text(act.figures, STYLES[Phase.HELD] if act.phase is Phase.HELD else ""))
    return grid


def _mark(phase: Phase, glyphs: Glyphs) -> tuple[str, str]:
    return glyphs.marks[phase], STYLES[phase]
