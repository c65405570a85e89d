"""Why a stream got the connection it got, or none: the last choices of an agent, for whoever looks."""

import enum
from collections import OrderedDict, deque

import attrs

MAX_TRACES = 256  # of one agent
MAX_TRACED = 4096  # agents; the one that was chosen for longest ago is forgotten first


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


class TraceRing:
    """The last traces; older ones are forgotten, but counted.

    Attributes:
        chosen: how many choices there were, by scope.
        none: how many found nothing to choose.
    """

    def __init__(self, max_traces: int = MAX_TRACES) -> None:
        self.chosen = dict.fromkeys(Scope, 0)
        self.none = dict.fromkeys(Scope, 0)
        self._traces: deque[Trace] = deque(maxlen=max_traces)

    def add(self, trace: Trace) -> None:
        self._traces.append(trace)
        counts = self.chosen if trace.chosen else self.none
        counts[trace.scope] += 1

    def latest(self) -> tuple[Trace, ...]:
        """The newest last."""
        return tuple(self._traces)

    def find(self, trace_id: str) -> Trace | None:
        return next((trace for trace in self._traces if trace.trace_id == trace_id), None)

    def __len__(self) -> int:
        return len(self._traces)


class TraceBook:
    """The traces of all agents that this router chose for, those whose connections are all elsewhere among them."""

    def __init__(self, max_agents: int = MAX_TRACED) -> None:
        self._max_agents = max_agents
        self._rings: OrderedDict[str, TraceRing] = OrderedDict()

    def of(self, agent_id: str) -> TraceRing:
        """The traces of one agent; none yet, if nothing was chosen."""
        ring = self._rings.setdefault(agent_id, TraceRing())
        self._rings.move_to_end(agent_id)
        if len(self._rings) > self._max_agents:
            self._rings.popitem(last=False)
        return ring

    def get(self, agent_id: str) -> TraceRing | None:
        """The same for whoever looks: nothing is made, and nothing forgotten for it."""
        return self._rings.get(agent_id)

    def items(self) -> tuple[tuple[str, TraceRing], ...]:
        """All of them, by agent."""
        return tuple(self._rings.items())

    def __len__(self) -> int:
        return len(self._rings)
