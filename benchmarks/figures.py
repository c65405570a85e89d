"""What is measured: the scenarios, and the figures that each of them gives."""

from collections.abc import Collection

import attrs

TLS = "loopback-tls-trio"  # what most figures are divided by
HAPROXY_TLS = "haproxy-tls-trio"

SCENARIOS = {
    "S1": "bulk on one stream, until every byte is confirmed",
    "S2": "bulk on 16 streams at once",
    "S3": "64 bytes there and back on a standing stream",
    "S4": "64 callers at once, each request on a new stream",
    "S4k": "64 callers at once, each on a standing stream",
    "S5": "a new circuit, to the first byte that comes back",
    "S6": "members that attach and stay idle: the router's memory, and how fast they come",
    "S7": "an event of 300 bytes to all members of a router, until the last has it",
    "S8": "the router's CPU time for the bytes of S1",
}
ON_STREAMS = ("S1", "S2", "S3", "S4k", "S4")  # in one set of processes, in this order


@attrs.frozen
class Figure:
    """A number that is reported.

    Attributes:
        scenario: which gives it.
        name: among the values of a measurement.
        unit: as it is shown.
        scale: from a measurement's unit (bytes, seconds) to the one shown.
        label: tells two figures of one scenario apart.
        higher_is_better: else lower.
        reference: the stack that it is divided by; None where there is none to compare with.
    """

    scenario: str
    name: str
    unit: str
    scale: float = 1.0
    label: str = ""
    higher_is_better: bool = False
    reference: str | None = TLS

    @property
    def title(self) -> str:
        return f"{self.scenario} {self.label}".strip() + f", {self.unit}"


FIGURES = (
    Figure("S1", "bytes_per_second", "MB/s", 1e-6, "bulk", higher_is_better=True),
    Figure("S2", "bytes_per_second", "MB/s", 1e-6, "bulk, 16 streams", higher_is_better=True),
    Figure("S3", "p50", "µs", 1e6, "round trip p50"),
    Figure("S3", "p99", "µs", 1e6, "round trip p99"),
    Figure("S4", "per_second", "/s", 1, "requests, new streams", higher_is_better=True),
    Figure("S4k", "per_second", "/s", 1, "requests, standing streams", higher_is_better=True),
    Figure("S5", "p50", "ms", 1e3, "set-up p50"),
    Figure("S5", "p99", "ms", 1e3, "set-up p99"),
    Figure("S6", "bytes_per_member", "KiB", 1 / 1024, "router's memory per member", reference=None),
    Figure("S6", "members_per_second", "/s", 1, "members attached", higher_is_better=True, reference=None),
    Figure("S7", "p50", "ms", 1e3, "an event to all members, p50", reference=None),
    Figure("S7", "router_cpu_per_delivery", "µs", 1e6, "router's CPU for each delivery", reference=None),
    Figure("S8", "router_cpu_per_gib", "s/GiB", 1, "router's CPU", reference=HAPROXY_TLS),
)


@attrs.frozen
class Work:
    """What a scenario does over and over, for the CPU time that one takes.

    Attributes:
        name: how much was done, among the values of a measurement.
        size: how much is one.
        unit: of CPU time per piece of work, as it is shown.
        scale: from seconds to that.
    """

    name: str
    size: float
    unit: str
    scale: float


_GIB, _REQUEST = Work("bytes", 2.0**30, "s/GiB", 1), Work("count", 1, "µs each", 1e6)
WORK = {
    **dict.fromkeys(("S1", "S2"), _GIB),
    **dict.fromkeys(("S3", "S4", "S4k"), _REQUEST),
    "S5": Work("count", 1, "ms each", 1e3),
    "S6": Work("members", 1, "ms each", 1e3),
    "S7": Work("deliveries", 1, "µs each", 1e6),
}


def measured_by(scenario: str) -> str:
    """The scenario that has to run for this one's figures."""
    return "S1" if scenario == "S8" else scenario


def figures_of(scenarios: Collection[str]) -> list[Figure]:
    return [figure for figure in FIGURES if figure.scenario in scenarios]
