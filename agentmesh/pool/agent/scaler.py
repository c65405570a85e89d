"""Decides how many connections an agent is to have, and keeps a record of every decision. Sans-IO."""

import math
from collections import Counter, deque
from collections.abc import Sequence

import attrs

from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.agent.dials import Slot
from agentmesh.pool.agent.scaling import (
    DOWN_EVALUATIONS,
    MAX_RECORDS,
    UP_EVALUATIONS,
    Benefit,
    Decision,
    FlapBudget,
    Reason,
    Record,
    Seen,
    leaves_room,
    pressure,
)

Outcome = tuple[Decision, Reason]


def idle(active: Sequence[Slot]) -> list[Slot]:
    """Those that were not needed for long enough."""
    return [slot for slot in active if slot.low >= DOWN_EVALUATIONS]


def least_needed(slots: Sequence[Slot]) -> Slot:
    """The one with the fewest streams, of equals the newest."""
    return min(slots, key=lambda slot: (slot.report.active_streams if slot.report else 0, -slot.number))


class Scaler:
    """One evaluation after another.

    Attributes:
        records: the last evaluations, the newest last.
        counts: all of them, by what they came to.
    """

    def __init__(self) -> None:
        self.records: deque[Record] = deque(maxlen=MAX_RECORDS)
        self.counts: Counter[Decision] = Counter(dict.fromkeys(Decision, 0))
        self.flaps = FlapBudget()
        self.benefit = Benefit()
        self._scaled_at = self._grown_at = -math.inf
        self._high = 0  # evaluations in a row that want more

    def refuse_growth(self, until: float) -> None:
        """A router had no room for one more: do not ask for it before then."""
        self._grown_at = max(self._grown_at, until)

    def evaluate(
        self, active: Sequence[Slot], count: int, ceiling: int, config: ConnectionsConfig, now: float
    ) -> Decision:
        """Decide, and record it. What is decided counts as done.

        Args:
            active: the connections in the pool.
            count: those and the ones being made.
            ceiling: how many there may be.
        """
        seen = tuple(
            Seen(slot.connection_id, slot.report, slot.best_rtt, slot.has_carried, now - slot.joined_at)
            for slot in active
            if slot.report is not None
        )
        wanted = pressure(seen, config)
        self._count_streaks(wanted, active, config)
        in_vain = self.benefit.look(seen, joined=len(active) == count)
        decision, reason = self._decide(wanted, seen, active, count, ceiling, config, now)
        if in_vain and decision is Decision.HOLD:
            decision, reason = Decision.REJECTED, Reason.NO_BENEFIT
        self._note(decision, seen, now)
        self.counts[decision] += 1
        self.records.append(
            Record(
                at=now,
                decision=decision,
                reason=reason,
                wanted=(wanted or Reason.LOW_LOAD) if decision is Decision.REJECTED else None,
                connections=count,
                ceiling=ceiling,
                seen=seen,
            )
        )
        return decision

    def _count_streaks(self, wanted: Reason | None, active: Sequence[Slot], config: ConnectionsConfig) -> None:
        """Low and high exclude each other: where more is wanted, nothing is idle."""
        self._high = self._high + 1 if wanted else 0
        for slot in active:
            is_low = slot.report is not None and slot.report.active_streams <= config.low_watermark
            slot.low = slot.low + 1 if is_low and not wanted else 0
            if slot.report is not None:  # errors are told once
                slot.report = attrs.evolve(slot.report, transport_errors=0)

    def _decide(
        self,
        wanted: Reason | None,
        seen: Sequence[Seen],
        active: Sequence[Slot],
        count: int,
        ceiling: int,
        config: ConnectionsConfig,
        now: float,
    ) -> Outcome:
        if not seen:
            return Decision.HOLD, Reason.NO_REPORTS
        if wanted is not None:
            against = self._against_more(active, count, ceiling, config, now)
            return (Decision.REJECTED, against) if against else (Decision.SCALE_UP, wanted)
        if count <= config.min or not any(slot.low for slot in active):
            return Decision.HOLD, Reason.STEADY
        against = self._against_fewer(seen, active, count, config, now)
        return (Decision.REJECTED, against) if against else (Decision.SCALE_DOWN, Reason.LOW_LOAD)

    def _against_more(
        self, active: Sequence[Slot], count: int, ceiling: int, config: ConnectionsConfig, now: float
    ) -> Reason | None:
        supports = [slot.ack is not None and slot.ack.connection_pool_supported for slot in active]
        if self._high < UP_EVALUATIONS:
            return Reason.WINDOW
        if count >= config.max:
            return Reason.AT_MAX
        if not any(supports):
            return Reason.ACK_MISSING
        if not all(supports):
            return Reason.UNSUPPORTED
        if count >= ceiling:
            return Reason.AT_MAX
        if len(active) < count:
            return Reason.DIALING
        if now < self._grown_at + config.evaluation_interval * UP_EVALUATIONS * self.benefit.patience:
            return Reason.NO_BENEFIT if self.benefit.patience > 1 else Reason.COOLDOWN
        return None

    def _against_fewer(
        self, seen: Sequence[Seen], active: Sequence[Slot], count: int, config: ConnectionsConfig, now: float
    ) -> Reason | None:
        if not idle(active):
            return Reason.WINDOW
        if len(active) < count or len(seen) < len(active):
            return Reason.DIALING
        if now < self._scaled_at + config.cooldown:
            return Reason.COOLDOWN
        if not leaves_room(seen, config):
            return Reason.PROJECTION
        if not self.flaps.may_go_down(now):
            return Reason.FLAPPING
        return None

    def _note(self, decision: Decision, seen: Sequence[Seen], now: float) -> None:
        if decision not in (Decision.SCALE_UP, Decision.SCALE_DOWN):
            return
        if decision is Decision.SCALE_UP:
            self.benefit.begin(seen)
            self._grown_at = max(self._grown_at, now)
        else:
            self.benefit.forget()
        self._scaled_at, self._high = now, 0
        self.flaps.went(decision, now)
