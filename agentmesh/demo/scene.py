"""What the demo shows, as values: the processes, the acts, and where a circuit runs."""

import enum

import attrs

TRANSPORT_NAMES = {"tcp": "TCP", "ws": "WebSocket"}


class Phase(enum.Enum):
    """How a process or an act stands."""

    PENDING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    UP = "up"
    HELD = "held"
    FAILED = "failed"


@attrs.define
class Player:
    """One process.

    Attributes:
        routers: the names of the routers that it is attached to.
        transport: over what.
    """

    name: str
    what: str
    phase: Phase = Phase.PENDING
    pid: int | None = None
    routers: tuple[str, ...] = ()
    transport: str = ""


@attrs.define
class Act:
    """One thing that is done with the mesh.

    Attributes:
        done: bytes so far, when it moves a file.
        total: bytes in all, then.
        seconds: since it began, as measured where it happens.
        result: what came of it.
    """

    title: str
    phase: Phase = Phase.PENDING
    done: int = 0
    total: int = 0
    seconds: float = 0.0
    result: str = ""

    @property
    def figures(self) -> str:
        """How much, how fast, and what came of it: as much of it as is known."""
        moved = f"{self.done / 2**20:.0f} of {self.total / 2**20:.0f} MiB" if self.total else ""
        rate = f"{self.done / self.seconds / 1e6:.1f} MB/s" if self.done and self.seconds else ""
        return "   ".join(filter(None, (moved, rate, self.result)))


@attrs.frozen
class Path:
    """A circuit: who calls whom, and the router between them."""

    caller: str
    router: str
    callee: str


@attrs.define
class Scene:
    """All of it."""

    players: dict[str, Player]
    acts: dict[str, Act]
    path: Path | None = None
