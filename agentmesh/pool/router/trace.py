"""Why a stream got the connection it got, or none: the last choices of an agent, for whoever looks."""

import enum
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial

import attrs

MAX_TRACES = 256  # of one agent
MAX_TRACED = 16_384  # agents; the one that was chosen for longest ago is forgotten first
MAX_HELD = 262_144  # connections that were looked at, in the traces of all agents: some 30 MB


class WhyNot(enum.StrEnum):
    """Why a connection is not chosen; the five tests, in their order."""

    NOT_OPEN = "not_open"
    UNSUPPORTED = "unsupported"
    STALE = "stale"
    FAILING = "failing"
    FULL = "full"


class Scope(enum.StrEnum):
    """Where a chosen connection ends."""

    LOCAL = "local"
    REMOTE = "remote"


@attrs.frozen
class Considered:
    """One connection that was looked at.

    Attributes:
        score: thousandths of a stream; None when it was not eligible.
        why_not: and then this says why.
    """

    connection_id: str
    epoch: int
    score: int | None
    why_not: WhyNot | None = None


@attrs.frozen(kw_only=True)
class Trace:
    """One choice. `chosen` is a connection's ID, "" when there was none to choose."""

    trace_id: str
    at: float
    protocol: str
    scope: Scope
    considered: tuple[Considered, ...]
    chosen: str

    @property
    def size(self) -> int:
        """What it counts of MAX_HELD."""
        return 1 + len(self.considered)


class TraceRing:
    """The last traces; older ones are forgotten, but counted.

    Attributes:
        chosen: how many choices there were, by scope.
        none: how many found nothing to choose.
    """

    def __init__(self, max_traces: int = MAX_TRACES, on_growth: "OnGrowth | None" = None) -> None:
        self.chosen = dict.fromkeys(Scope, 0)
        self.none = dict.fromkeys(Scope, 0)
        self._traces: deque[Trace] = deque(maxlen=max_traces)
        self._on_growth = on_growth

    def add(self, trace: Trace) -> None:
        lost = self._traces[0].size if len(self._traces) == self._traces.maxlen else 0
        self._traces.append(trace)
        counts = self.chosen if trace.chosen else self.none
        counts[trace.scope] += 1
        if self._on_growth is not None:
            self._on_growth(self, trace.size - lost)

    @property
    def size(self) -> int:
        """Of all its traces."""
        return sum(trace.size for trace in self._traces)

    def clear(self) -> int:
        """Forget the traces, and not their numbers. Returns their size."""
        size = self.size
        self._traces.clear()
        return size

    def latest(self) -> tuple[Trace, ...]:
        """The newest last."""
        return tuple(self._traces)

    def find(self, trace_id: str) -> Trace | None:
        return next((trace for trace in self._traces if trace.trace_id == trace_id), None)

    def __len__(self) -> int:
        return len(self._traces)


OnGrowth = Callable[[TraceRing, int], None]


class TraceBook:
    """The traces of all agents that this router chose for, those whose connections are all elsewhere among them.

    Args:
        max_agents: whose numbers are kept.
        max_held: bounds all traces together; those of the agents that were chosen for longest ago go first.
    """

    def __init__(self, max_agents: int = MAX_TRACED, max_held: int = MAX_HELD) -> None:
        self._max_agents, self._max_held = max_agents, max_held
        self._held = 0
        self._rings: OrderedDict[str, TraceRing] = OrderedDict()

    def of(self, agent_id: str) -> TraceRing:
        """The traces of one agent; none yet, if nothing was chosen."""
        ring = self._rings.pop(agent_id, None)
        if ring is None:
            ring = TraceRing(on_growth=partial(self._grow, agent_id))
        self._keep(agent_id, ring)
        return ring

    def _grow(self, agent_id: str, ring: TraceRing, size: int) -> None:
        """One of the rings has grown; or one that was forgotten here, and is used all the same."""
        known = self._rings.pop(agent_id, None)
        self._held += size if known is ring else ring.size - (0 if known is None else known.size)
        self._keep(agent_id, ring)
        while self._held > self._max_held:
            oldest, forgotten = next(iter(self._rings.items()))
            self._held -= forgotten.clear()
            self._rings.move_to_end(oldest)

    def _keep(self, agent_id: str, ring: TraceRing) -> None:
        self._rings[agent_id] = ring  # the last
        if len(self._rings) > self._max_agents:
            self._held -= self._rings.popitem(last=False)[1].clear()

    def get(self, agent_id: str) -> TraceRing | None:
        """The same for whoever looks: nothing is made, and nothing forgotten for it."""
        return self._rings.get(agent_id)

    def items(self) -> tuple[tuple[str, TraceRing], ...]:
        """All of them, by agent."""
        return tuple(self._rings.items())

    def __len__(self) -> int:
        return len(self._rings)
