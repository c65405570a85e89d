"""What a ladder finds: the mesh before and after each step, and what the members of a step say. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from agentmesh.bench.report import JoinReport
from agentmesh.bench.summary import Distribution
from benchmarks.programs import Metrics, value_of

MIB = 1024 * 1024
ROUTER = "agentmesh_router"
PLANE = "agentmesh_control_plane"


@attrs.frozen
class Process:
    """What one process uses: bytes, and CPU seconds since it began."""

    memory: int
    cpu: float


@attrs.frozen
class RouterState:
    """A router as it is at one moment: what it uses, and what it counts."""

    process: Process
    inbound: int
    outbound: int
    high_watermark: int
    reservations: int
    circuits: int
    handshakes: int
    refused: int
    sent_away: int

    @classmethod
    def of(cls, process: Process, metrics: Metrics) -> "RouterState":
        def total(name: str) -> int:
            return int(sum(value for (found, _), value in metrics.items() if found == f"{ROUTER}_{name}"))

        def one(name: str, **labels: str) -> int:
            return int(value_of(metrics, f"{ROUTER}_{name}", **labels))

        return cls(
            process=process,
            inbound=one("connections", direction="inbound"),
            outbound=one("connections", direction="outbound"),
            high_watermark=one("connection_watermark", level="high"),
            reservations=one("relay_reservations"),
            circuits=one("relay_circuits"),
            handshakes=one("auth_handshakes_total", result="ok"),
            refused=total("inbound_connections_refused_total"),
            sent_away=total("goaway_sent_total"),
        )


@attrs.frozen
class Snapshot:
    """The mesh at one moment."""

    control_plane: Process
    routers_active: int
    routers: tuple[RouterState, ...]
    members: Process  # of all processes of members together

    @property
    def sessions(self) -> int:
        """Of all routers, those between them left out: each of these is inbound at one."""
        between = sum(router.outbound for router in self.routers)
        return sum(router.inbound for router in self.routers) - between

    @property
    def router_memory(self) -> int:
        return sum(router.process.memory for router in self.routers)


@attrs.frozen
class Step:
    """One step: so many members more.

    Attributes:
        resident: members after it.
        report: what those of this step say; as they were when the ladder was left.
    """

    number: int
    resident: int
    before: Snapshot
    after: Snapshot
    report: JoinReport | None = None

    @property
    def ready_ms(self) -> Distribution:
        members = self.report.members if self.report else ()
        return Distribution.of([member.ready_ms for member in members])

    @property
    def first_call_ms(self) -> Distribution:
        members = self.report.members if self.report else ()
        return Distribution.of([one.first_call_ms for one in members if one.first_call_ms is not None])


@attrs.frozen
class Model:
    """What the sizing of docs/scalability.md says, of F members with K routers each on N routers of watermark H."""

    members: int
    wanted: int
    routers: int
    high_watermark: int

    @property
    def held(self) -> int:
        """Routers that one member holds."""
        return min(self.wanted, self.routers)

    @property
    def sessions_per_router(self) -> float:
        """F × K / N."""
        return self.members * self.held / self.routers

    @property
    def members_that_fit(self) -> float:
        """N × H / K."""
        return self.routers * self.high_watermark / self.held

    @property
    def watermark_needed(self) -> float:
        """1.2 × F × K / (N - 1): so that one router may be down."""
        return 1.2 * self.members * self.held / max(self.routers - 1, 1)

    @property
    def between_routers(self) -> float:
        """N (N - 1) / 2."""
        return self.routers * (self.routers - 1) / 2


def lines_of(steps: Sequence[Step], wanted: int) -> list[tuple[str, list[str]]]:
    """A table of the steps, a column each."""
    rows: list[tuple[str, list[str]]] = []

    def row(name: str, texts: Sequence[str]) -> None:
        rows.append((name, list(texts)))

    after = [step.after for step in steps]
    models = [
        Model(step.resident, wanted, len(step.after.routers), step.after.routers[0].high_watermark) for step in steps
    ]
    row("members", [f"{step.resident:,}" for step in steps])
    row("  that did not come", [f"{step.report.failed:,}" if step.report else "-" for step in steps])
    row("ready, ms: median, p99, last", [_three(step.ready_ms) for step in steps])
    row("first call, ms: median, p99, last", [_three(step.first_call_ms) for step in steps])
    row("sessions of a router, by the model", [f"{model.sessions_per_router:,.0f}" for model in models])
    row("  measured, least and most", [_least_and_most([one.inbound for one in at.routers]) for at in after])
    row("between routers, by the model", [f"{model.between_routers:.0f}" for model in models])
    row("  measured", [f"{sum(one.outbound for one in at.routers)}" for at in after])
    row("watermark that one router down needs", [f"{model.watermark_needed:,.0f}" for model in models])
    row("memory of all routers, MiB", [f"{at.router_memory / MIB:,.0f}" for at in after])
    row("  for each session, KiB", [_per_session(steps[0].before, at) for at in after])
    row("memory of the control plane, MiB", [f"{at.control_plane.memory / MIB:,.0f}" for at in after])
    row("memory of members' processes, for each, KiB", [_per_member(step) for step in steps])
    row("CPU of all routers in the step, s", [f"{_cpu(step):.1f}" for step in steps])
    row("refused, sent away", [f"{_refused(step)}, {_sent_away(step)}" for step in steps])
    return rows


def holds_of(steps: Sequence[Step]) -> list[tuple[str, dict[str, Any]]]:
    """What became of the members of each step while the ladder went on."""
    found = [(str(step.number), step.report.hold) for step in steps if step.report is not None]
    return [(number, attrs.asdict(hold)) for number, hold in found if hold is not None]


def _three(found: Distribution) -> str:
    return ", ".join(f"{found.values[name]:,.0f}" for name in ("p50", "p99", "max")) if found.count else "-"


def _least_and_most(values: Sequence[int]) -> str:
    return f"{min(values):,} to {max(values):,}"


def _per_session(first: Snapshot, at: Snapshot) -> str:
    sessions = at.sessions - first.sessions
    return f"{(at.router_memory - first.router_memory) / sessions / 1024:,.0f}" if sessions else "-"


def _per_member(step: Step) -> str:
    return f"{step.after.members.memory / step.resident / 1024:,.0f}" if step.resident else "-"


def _cpu(step: Step) -> float:
    return _sum(step, lambda router: router.process.cpu)


def _refused(step: Step) -> int:
    return int(_sum(step, lambda router: router.refused))


def _sent_away(step: Step) -> int:
    return int(_sum(step, lambda router: router.sent_away))


def _sum(step: Step, figure: Callable[[RouterState], float]) -> float:
    return sum(map(figure, step.after.routers)) - sum(map(figure, step.before.routers))


def as_json(steps: Sequence[Step]) -> list[Mapping[str, Any]]:
    """All of it, members but as distributions."""
    found: list[Mapping[str, Any]] = []
    for step in steps:
        content = attrs.asdict(step)
        if content["report"] is not None:
            del content["report"]["members"]
        content["ready_ms"], content["first_call_ms"] = (
            attrs.asdict(one) for one in (step.ready_ms, step.first_call_ms)
        )
        found.append(content)
    return found
