"""The routers a node knows: which to attach to now, which are held, which to leave alone for a while. Pure."""

import enum
import math
from collections.abc import Iterable
from random import Random

import attrs

from agentmesh.control_plane.routers import RouterRecord
from agentmesh.types import PeerId

FIRST_REDIAL_WAIT = 2.0  # seconds after a first failure, doubling
MAX_ATTEMPTS = 6  # then the router is shunned and another takes its place
SHUN_TIME = 300.0  # seconds
LOAD_JITTER = 0.05  # so that members that start together do not all choose the same router
UNKNOWN_LOAD = 0.5


class State(enum.Enum):
    FREE = "free"
    ATTACHING = "attaching"
    ATTACHED = "attached"
    WAITING = "waiting"


class Input(enum.Enum):
    CHOSEN = "chosen"
    ADMITTED = "admitted"
    FAILED = "failed"
    LOST = "lost"
    TIMEOUT = "timeout"


# None: the driver misreads its own tasks.
ROWS: dict[State, tuple[State | None, ...]] = {
    #                  CHOSEN           ADMITTED        FAILED         LOST        TIMEOUT
    State.FREE: (State.ATTACHING, None, None, None, State.FREE),
    State.ATTACHING: (None, State.ATTACHED, State.WAITING, None, State.ATTACHING),
    State.ATTACHED: (None, None, None, State.FREE, State.ATTACHED),
    State.WAITING: (None, None, None, None, State.FREE),
}
TRANSITIONS = {(state, got): to for state, row in ROWS.items() for got, to in zip(Input, row, strict=True)}


@attrs.define
class _Entry:
    record: RouterRecord
    state: State = State.FREE
    failures: int = 0
    wait_until: float = math.inf
    listed: bool = True


class Catalogue:
    """The routers of the mesh, as this node stands to each.

    Args:
        wanted: how many to be attached to; every router when there are fewer.
        rng: for the order among routers of like load.
    """

    def __init__(self, wanted: int, rng: Random) -> None:
        self._wanted = wanted
        self._rng = rng
        self._entries: dict[PeerId, _Entry] = {}

    @property
    def deadline(self) -> float:
        """When a router that was left alone may be tried again."""
        return min((entry.wait_until for entry in self._entries.values()), default=math.inf)

    @property
    def attached(self) -> tuple[RouterRecord, ...]:
        return self._in(State.ATTACHED)

    @property
    def listed(self) -> tuple[RouterRecord, ...]:
        """Every router that the control plane names."""
        return tuple(entry.record for entry in self._entries.values() if entry.listed)

    @property
    def is_short(self) -> bool:
        """Whether fewer routers are attached than wanted."""
        return len(self.attached) < self._wanted

    def update(self, records: Iterable[RouterRecord]) -> None:
        """The control plane's list now. A router that is no longer on it is forgotten once it is not held."""
        now_listed = {record.peer: record for record in records if record.addresses}
        for peer, entry in list(self._entries.items()):
            entry.listed = peer in now_listed
            if not entry.listed and entry.state in (State.FREE, State.WAITING):
                del self._entries[peer]
        for peer, record in now_listed.items():
            self._entries.setdefault(peer, _Entry(record)).record = record

    def choose(self, now: float) -> list[RouterRecord]:
        """The routers to attach to now: the least loaded that are free, as many as are missing. They count as
        ATTACHING.
        """
        for entry in self._entries.values():
            if entry.wait_until <= now:
                self._step(entry, Input.TIMEOUT)
                entry.wait_until = math.inf
        missing = self._wanted - len(self.attached) - len(self._in(State.ATTACHING))
        free = [entry for entry in self._entries.values() if entry.state is State.FREE and entry.listed]
        free.sort(key=lambda entry: _load(entry.record) + self._rng.random() * LOAD_JITTER)
        chosen = free[: max(missing, 0)]
        for entry in chosen:
            self._step(entry, Input.CHOSEN)
        return [entry.record for entry in chosen]

    def admitted(self, peer: PeerId) -> None:
        """The router admitted us: attached."""
        entry = self._entries[peer]
        self._step(entry, Input.ADMITTED)
        entry.failures = 0

    def failed(self, peer: PeerId, now: float) -> None:
        """An attempt came to nothing. The next waits 2 s, doubling; after six the router is shunned."""
        entry = self._entries[peer]
        self._step(entry, Input.FAILED)
        entry.failures += 1
        if entry.failures >= MAX_ATTEMPTS:
            entry.failures, wait = 0, SHUN_TIME
        else:
            wait = FIRST_REDIAL_WAIT * 2 ** (entry.failures - 1)
        entry.wait_until = now + wait
        self._forget_unlisted(peer)

    def lost(self, peer: PeerId) -> None:
        """The session to an attached router ended."""
        self._step(self._entries[peer], Input.LOST)
        self._forget_unlisted(peer)

    def _step(self, entry: _Entry, got: Input) -> None:
        after = TRANSITIONS[entry.state, got]
        if after is None:
            raise AssertionError(f"{entry.record.peer}: {got.value} while {entry.state.value}")
        entry.state = after

    def _in(self, state: State) -> tuple[RouterRecord, ...]:
        return tuple(entry.record for entry in self._entries.values() if entry.state is state)

    def _forget_unlisted(self, peer: PeerId) -> None:
        if not self._entries[peer].listed:
            del self._entries[peer]


def _load(record: RouterRecord) -> float:
    if record.connection_limit <= 0:
        return UNKNOWN_LOAD
    return min(max(record.connections / record.connection_limit, 0.0), 1.0)
