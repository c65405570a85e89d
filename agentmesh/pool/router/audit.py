"""What is written down about connections: who came, who was refused and why, who left.

Nobody who is refused again and again fills the book: refusals of one credential for one reason are one entry a minute,
with their number.
"""

import enum
import math
from collections.abc import Callable

import attrs

AGGREGATION_INTERVAL = 60.0  # seconds
MAX_PENDING = 10_000  # entries that nobody has taken
MAX_AGGREGATED = 4096  # credentials and reasons; beyond it the oldest is written down at once


class Action(enum.StrEnum):
    """What happened."""

    REGISTERED = "agent.connection.registered"
    REPLACED = "agent.connection.replaced"
    REJECTED = "agent.connection.rejected"
    DRAINING = "agent.connection.draining"
    HEALED = "agent.connection.healed"  # its lease had run out; it is listed again, under another epoch
    UNLISTED = "agent.connection.unlisted"  # its lease has run out, and the cluster has no place for it now
    SUPERSEDED = "agent.connection.superseded"  # it lives on at another router
    CLOSED = "agent.connection.closed"
    CLOSED_BY_ADMIN = "agent.connection.closed_by_admin"
    CLOSE_FAILED = "agent.connection.close_failed"
    CLONED = "agent.instance.cloned"


@attrs.frozen(kw_only=True)
class AuditEvent:
    """One entry.

    Attributes:
        at: seconds on the caller's clock.
        token_id: names a credential and does not hold it.
        reason: of a refusal or an end; "" otherwise.
        count: how many of them this entry stands for.
    """

    action: Action
    at: float
    agent_id: str
    instance_id: str
    connection_id: str
    server_node_id: str
    token_id: str
    epoch: int
    reason: str = ""
    count: int = 1


class Audit:
    """The entries since they were last taken, at most `max_pending`; what goes beyond is counted in `lost`."""

    def __init__(self, max_pending: int = MAX_PENDING) -> None:
        self.lost = 0
        self._max_pending = max_pending
        self._pending: list[AuditEvent] = []
        self._held: dict[tuple[str, str], tuple[float, AuditEvent | None]] = {}  # since when; what came since
        self._wake: Callable[[], None] = _nobody_waits

    @property
    def deadline(self) -> float:
        """When `take` has something though nothing more happens; infinite: never."""
        return next((since + AGGREGATION_INTERVAL for since, _ in self._held.values()), math.inf)

    def watch(self, wake: Callable[[], None]) -> None:
        """Have `wake` called whenever something was recorded. It must neither wait nor raise."""
        self._wake = wake

    def record(self, event: AuditEvent) -> None:
        """Write down one thing that happened; a refusal perhaps later, with others like it."""
        if event.action is Action.REJECTED:
            self._hold(event)
        else:
            self._write(event)
        self._wake()

    def take(self, now: float) -> list[AuditEvent]:
        """What is to be written to wherever it is kept."""
        self._settle(now)
        taken, self._pending = self._pending, []
        return taken

    def close(self) -> list[AuditEvent]:
        """All that is left, counted or not."""
        for key in list(self._held):
            self._release(key)
        taken, self._pending = self._pending, []
        return taken

    def __len__(self) -> int:
        return len(self._pending) + len(self._held)

    def _hold(self, event: AuditEvent) -> None:
        self._settle(event.at)
        key = (event.token_id, event.reason)
        since, held = self._held.get(key, (event.at, None))
        if key not in self._held:
            self._write(event)
            self._held[key] = (since, None)
        else:
            self._held[key] = (since, attrs.evolve(event, count=event.count + (held.count if held else 0)))
        if len(self._held) > MAX_AGGREGATED:
            self._release(next(iter(self._held)))

    def _settle(self, now: float) -> None:
        """Write down what has been held for a minute. They are held in the order in which they came."""
        while self._held:
            key, (since, _) = next(iter(self._held.items()))
            if now < since + AGGREGATION_INTERVAL:
                return
            self._release(key)

    def _release(self, key: tuple[str, str]) -> None:
        _, held = self._held.pop(key)
        if held is not None:
            self._write(held)

    def _write(self, event: AuditEvent) -> None:
        if len(self._pending) >= self._max_pending:
            self.lost += event.count
        else:
            self._pending.append(event)


def _nobody_waits() -> None:
    """Until somebody does."""
