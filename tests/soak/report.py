"""What a soak has to say, in a page."""

import hashlib
import resource
from collections import Counter
from collections.abc import Iterator, Sequence

from agentmesh.testing import TraceEntry
from tests.soak.scenario import Attack, Fault
from tests.soak.soak import Soak

MEGABYTE = 1e6


def report(soak: Soak) -> str:
    """Numbers, and whatever should not be."""
    return "\n".join(_lines(soak))


def fingerprint(soak: Soak, trace: Sequence[TraceEntry]) -> str:
    """The same for two runs that did the same."""
    return hashlib.sha256(repr((soak.happened, trace)).encode()).hexdigest()[:16]


def _lines(soak: Soak) -> Iterator[str]:
    counts = soak.counts
    faults = {fault.value: counts[fault.value] for fault in Fault}
    ways = {fault.value: counts[f"{fault.value}, ways"] for fault in Fault}
    yield f"faults        {sum(faults.values())}: {_listed(faults)}"
    yield f"  connections {sum(ways.values())}: {_listed(ways)}"
    yield f"members       {_listed({name: counts[name] for name in ('departure', 'death')})}"
    yield f"attacks       {_listed({attack.value: counts[attack.value] for attack in Attack})}"
    yield from _transfer_lines(soak)
    figures = soak.figures
    yield (
        f"routers       {figures.reservations} reservations, {figures.circuits} circuits, "
        f"{figures.relayed_bytes / MEGABYTE:.1f} MB relayed"
    )
    yield f"  refused     {_listed(figures.refusals)}"
    yield f"  handshakes  failed: {_listed(figures.failed_handshakes)}"
    yield f"  abuse       {_listed(figures.abuse)}"
    yield from _footprint_lines(soak)
    yield from (f"WRONG: {violation}" for violation in soak.violations)


def _transfer_lines(soak: Soak) -> Iterator[str]:
    sendings = soak.sendings
    failures = Counter(failure for sending in sendings for failure in sending.failures)
    yield (
        f"transfers     {len(sendings) - len(soak.pending)} of {len(sendings)} through, "
        f"{sum(sending.attempts > 1 for sending in sendings)} of them resumed, "
        f"the last {soak.recovered_after:.1f} s after the last fault"
    )
    yield f"  in vain     {soak.counts['attempt in vain']} attempts: {_listed(failures)}"
    yield (
        f"  bytes       {sum(sending.sent for sending in sendings) / MEGABYTE:.1f} MB sent, "
        f"{sum(sending.acknowledged.size for sending in sendings) / MEGABYTE:.1f} MB acknowledged"
    )


def _footprint_lines(soak: Soak) -> Iterator[str]:
    for when, found in zip(("before", "at work", "after"), soak.footprints, strict=False):
        yield f"  {when:<12}{found.tasks} tasks, {found.descriptors} descriptors"
    peak = resource.getrusage(resource.RUSAGE_SELF)
    yield f"peak memory   {peak.ru_maxrss / 1024:.0f} MiB, {peak.ru_utime + peak.ru_stime:.0f} s of CPU"


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"
