"""Which routers a node would be attached to, by what the control plane attests of them. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from agentmesh.control_plane.routers import RouterRecord

MAX_LABELS_SHOWN = 20  # of those that routers have, in a warning
LOAD_JITTER = 0.05  # so that members that start together do not all choose the same router
UNKNOWN_LOAD = 0.5

Pairs = Mapping[str, str]


@attrs.frozen
class Selection:
    """What a node asks of a router.

    Attributes:
        selector: what a router must be attested, every pair of it.
        prefer: what puts a router before others: the more pairs it has, the sooner it is chosen.
    """

    selector: Pairs = attrs.field(factory=dict[str, str])
    prefer: Pairs = attrs.field(factory=dict[str, str])

    def admits(self, record: RouterRecord) -> bool:
        """Whether a router may be chosen at all."""
        return all(record.labels.get(key) == value for key, value in self.selector.items())

    def rank(self, record: RouterRecord, jitter: float, crowd: float = 0.0) -> tuple[int, float]:
        """The place of a router in the order of choice: the lowest comes first.

        Args:
            jitter: 0 to 1, drawn for this choice.
            crowd: how many are looking for a router at this moment, and have the same list. What they would make of
                the router's load is how far it is spread.
        """
        attested = sum(record.labels.get(key) == value for key, value in self.prefer.items())
        spread = max(crowd / record.connection_limit, LOAD_JITTER) if record.connection_limit > 0 else LOAD_JITTER
        return -attested, load_of(record) + jitter * spread

    def complaint(self, records: Iterable[RouterRecord]) -> str | None:
        """What to tell a person when there are routers and the selector admits none: it, and the labels there are."""
        records = tuple(records)
        if not records or any(map(self.admits, records)):
            return None
        seen = Counter(pair for record in records for pair in record.labels.items())
        shown = [f"{key}={value}" for (key, value), _ in seen.most_common(MAX_LABELS_SHOWN)]
        more = "" if len(seen) <= MAX_LABELS_SHOWN else f" and {len(seen) - MAX_LABELS_SHOWN} more"
        wanted = ",".join(f"{key}={value}" for key, value in self.selector.items())
        return f"no router has {wanted}; labels seen: {', '.join(sorted(shown)) or 'none'}{more}"


def load_of(record: RouterRecord) -> float:
    """From 0, idle, to 1, full; a half where the router did not say."""
    if record.connection_limit <= 0:
        return UNKNOWN_LOAD
    return min(max(record.connections / record.connection_limit, 0.0), 1.0)
