"""What the demo tells while it runs: a picture that is redrawn in a terminal, a line for each event anywhere else."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import trio
from rich.console import Console
from rich.live import Live

from agentmesh.demo.scene import TRANSPORT_NAMES, Act, Path, Phase, Player, Scene
from agentmesh.demo.screen import OUTWARD, TITLE, Screen

REDRAW_INTERVAL = 0.1  # seconds
QUARTERS = 4  # how often a download says how far it is, where nothing is redrawn


class View:
    """The scene, and how it is shown.

    Args:
        console: where to.
        animated: whether `console` is a terminal that can be drawn over.
        clock: gives seconds, from any start.
        players: names of the processes, and what each does.
        acts: keys of the acts, and what each is.
    """

    def __init__(
        self,
        console: Console,
        animated: bool,
        clock: Callable[[], float],
        players: Sequence[tuple[str, str]],
        acts: Sequence[tuple[str, str]],
    ) -> None:
        self.scene = Scene(
            {name: Player(name, what) for name, what in players}, {key: Act(title) for key, title in acts}
        )
        self._console = console
        self._clock = clock
        self._started_at = clock()
        self._live = Live(console=console, auto_refresh=False, get_renderable=self._screen) if animated else None

    @property
    def elapsed(self) -> float:
        """Seconds since it was made."""
        return self._clock() - self._started_at

    @contextmanager
    def shown(self) -> Generator[None]:
        """Show it while the block runs; the last picture stays."""
        if self._live is None:
            self._console.print(f"agentmesh demo: {TITLE}. {OUTWARD}", soft_wrap=True)
            yield
            return
        with self._live:
            yield
            self._live.refresh()
        self._console.print()

    async def animate(self) -> NoReturn:
        """Redraw, until cancelled."""
        while True:
            if self._live is not None:
                self._live.refresh()
            await trio.sleep(REDRAW_INTERVAL)

    # ── the processes ──

    def started(self, name: str, pid: int) -> None:
        player = self.scene.players[name]
        player.phase, player.pid = Phase.STARTING, pid
        self._say(name, f"started, pid {pid}: {player.what}")

    def up(self, name: str) -> None:
        self.scene.players[name].phase = Phase.UP
        self._say(name, "up")

    def attached(self, name: str, routers: Sequence[str], transport: str) -> None:
        """A member holds these routers, over "tcp" or "ws"."""
        player = self.scene.players[name]
        player.phase, player.routers, player.transport = Phase.UP, tuple(routers), transport
        self._say(name, f"attached to {', '.join(routers)} over {TRANSPORT_NAMES[transport]}")

    def ended(self, name: str) -> None:
        """A process ended that should not have."""
        self.scene.players[name].phase = Phase.FAILED
        self._say(name, "ended")

    # ── the acts ──

    def began(self, key: str) -> None:
        act = self.scene.acts[key]
        act.phase = Phase.RUNNING
        self._say(self._number(key), act.title)

    def relayed(self, path: Path) -> None:
        """A circuit is open."""
        self.scene.path = path
        self._say(
            "",
            f"{path.caller} > {path.router} > {path.callee}, encrypted end to end: {path.router} has no key to it",
        )

    def progressed(self, key: str, done: int, total: int, seconds: float) -> None:
        """So many bytes of a file have come."""
        act = self.scene.acts[key]
        quarter = QUARTERS * act.done // total
        act.done, act.total, act.seconds = done, total, seconds
        if QUARTERS * done // total > quarter and done < total:
            self._say("", act.figures)

    def held(self, key: str, result: str) -> None:
        """An act came out as it should."""
        act = self.scene.acts[key]
        act.phase, act.result = Phase.HELD, result
        self._say("", act.figures)

    def broke_off(self) -> None:
        """Whatever was under way did not come to its end."""
        for act in self.scene.acts.values():
            if act.phase is Phase.RUNNING:
                act.phase = Phase.FAILED

    def _number(self, key: str) -> str:
        return f"act {list(self.scene.acts).index(key) + 1}"

    def _screen(self) -> Screen:
        return Screen(self.scene, self.elapsed)

    def _say(self, who: str, what: str) -> None:
        if self._live is None:
            self._console.print(
                f"{self.elapsed:5.1f} s  {who:<14} {what}", highlight=False, markup=False, soft_wrap=True
            )
