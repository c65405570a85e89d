"""How many connections an agent has: dials them, keeps them, adds and takes away. Sans-IO.

Call order for a driver: tell what happened, carry out each `next_order()`, call `handle_timeout` at `deadline`. What is
told of a connection that is gone is not heard. How many there are to be is decided by `scaler`.
"""

import math
from collections import deque
from collections.abc import Callable

from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.agent.dials import STABLE_AFTER, Backoff, Failure, Input, Search, Slot, State
from agentmesh.pool.agent.orders import Close, CloseReason, Dial, Drain, Order
from agentmesh.pool.agent.scaler import Scaler, idle, least_needed
from agentmesh.pool.agent.scaling import Decision, Report
from agentmesh.protocols.pool import Ack, DrainReason

DRAIN_TIMEOUT = 60.0  # seconds that streams have when their connection is taken away
SHUTDOWN_TIMEOUT = 30.0  # seconds that they have when the agent stops
MAX_REDIALS = 3  # for a router that is not connected to yet
REPLACED_AFTER = frozenset({DrainReason.SERVER_SHUTDOWN, DrainReason.PROTOCOL_ERROR, DrainReason.UNSPECIFIED})


class Controller:
    """The connections of one process of an agent.

    Args:
        config: how many there may be.
        make_id: a fresh connection ID, for each dial.
        chance: a number from 0 to 1, another each time.

    Attributes:
        scaler: decides how many there are to be, and keeps a record of that.
    """

    def __init__(self, config: ConnectionsConfig, make_id: Callable[[], str], chance: Callable[[], float]) -> None:
        self.config = config
        self.scaler = Scaler()
        self._make_id = make_id
        self._backoff = Backoff(chance)
        self._slots: list[Slot] = []
        self._made = 0
        self._orders: deque[Order] = deque()
        self._evaluate_at = math.inf
        self._only_node = ""  # that there seems to be
        self._search = Search()
        self._stopped = False

    # ── for drivers ──

    @property
    def deadline(self) -> float:
        """When `handle_timeout` has something to do."""
        waiting = [slot.at for slot in self._slots if slot.state is State.WAITING and self._may_dial(slot)]
        draining = [slot.at for slot in self._slots if slot.state is State.DRAINING]
        return min(self._evaluate_at, *waiting, *draining, math.inf)

    def next_order(self) -> Order | None:
        return self._orders.popleft() if self._orders else None

    @property
    def count(self) -> int:
        """Connections that there are or are about to be; those that drain do not count."""
        return sum(slot.is_counted for slot in self._slots)

    @property
    def is_over(self) -> bool:
        """Whether it was stopped, and nothing is left."""
        return self._stopped and not self._slots

    @property
    def active(self) -> tuple[str, ...]:
        """The IDs of those in the pool, the oldest first."""
        return tuple(slot.connection_id for slot in self._in(State.ACTIVE))

    @property
    def ceiling(self) -> int:
        """How many there may be: what the configuration says, and what every router connected to says."""
        acks = [slot.ack for slot in self._in(State.ACTIVE) if slot.ack is not None]
        if any(not ack.connection_pool_supported for ack in acks):
            return min(self.config.max, len(acks))
        allowed = [ack.max_connections_per_agent for ack in acks if ack.max_connections_per_agent]
        return max(min([self.config.max, *allowed]), 1)

    def start(self, now: float) -> None:
        """Begin: the first connection, then as many as there have to be at least."""
        self._evaluate_at = now + self.config.evaluation_interval
        self._fill(now)
        self._dial_due(now)

    def stop(self, now: float) -> None:
        """Drain everything and dial nothing."""
        self._stopped = True
        self._evaluate_at = math.inf
        for slot in list(self._slots):
            if slot.state is State.ACTIVE:
                self._drain(slot, DrainReason.AGENT_SHUTDOWN, now, SHUTDOWN_TIMEOUT)
            elif slot.state is not State.DRAINING:
                self._end(slot, CloseReason.STOPPED)

    def handle_timeout(self, now: float) -> None:
        for slot in [slot for slot in self._in(State.DRAINING) if now >= slot.at]:
            self._end(slot, CloseReason.DRAIN_TIMEOUT)
        if now >= self._evaluate_at:
            self._evaluate_at = now + self.config.evaluation_interval
            self._evaluate(now)
        self._dial_due(now)

    # ── what happened ──

    def joined(self, connection_id: str, ack: Ack, now: float) -> None:
        """A dial brought a connection that its router took."""
        slot = self._find(connection_id, State.DIALING)
        if slot is None:
            return
        slot.step(Input.JOIN)
        slot.ack, slot.joined_at = ack, now
        self._look_elsewhere(slot, now)
        self._fit(now)
        self._fill(now)
        self._dial_due(now)

    def acknowledged(self, connection_id: str, ack: Ack, now: float) -> None:
        """The router says anew what it takes."""
        slot = self._find(connection_id, State.ACTIVE)
        if slot is not None:
            slot.ack = ack
            self._fit(now)
            self._fill(now)
            self._dial_due(now)

    def dial_failed(self, connection_id: str, failure: Failure, now: float, retry_after: float = 0.0) -> None:
        """A dial brought nothing. A place beyond the least is given up when the router has none for it."""
        slot = self._find(connection_id, State.DIALING)
        if slot is None:
            return
        slot.step(Input.FAIL)
        slot.forget()
        self._postpone(slot, now + self._backoff.failed(failure, now, retry_after))
        if failure is Failure.REFUSED and self.count > self.config.min:
            self._end(slot, None)
            self.scaler.refuse_growth(slot.at)
        self._dial_due(now)

    def lost(self, connection_id: str, now: float) -> None:
        """A connection is gone, without having been told to. Its place is filled again."""
        slot = self._find(connection_id, State.DIALING, State.ACTIVE, State.DRAINING)
        if slot is None:
            return
        lasted = now - slot.joined_at
        slot.step(Input.LOSE)
        slot.forget()
        if slot.state is State.GONE:
            self._slots.remove(slot)
        else:
            self._postpone(slot, now + self._backoff.lost(lasted, now))
        self._fit(now)
        self._fill(now)
        self._dial_due(now)

    def goaway(self, connection_id: str, reason: DrainReason, now: float, timeout: float, retry_after: float) -> None:
        """The router lets a connection go, for a while yet. The next is made before this one ends.

        Args:
            timeout: seconds that its streams have.
            retry_after: seconds that a new one is to wait for.
        """
        slot = self._find(connection_id, State.ACTIVE)
        if slot is None:
            return
        slot.step(Input.DRAIN)
        slot.at = now + min(timeout, DRAIN_TIMEOUT)
        if reason in REPLACED_AFTER and not self._stopped and self.count < self.ceiling:
            self._add(now + self._backoff.asked(retry_after))
        self._fill(now)
        self._dial_due(now)

    def report(self, connection_id: str, report: Report) -> None:
        """How a connection is."""
        slot = self._find(connection_id, State.ACTIVE)
        if slot is not None:
            slot.take(report)

    def drained(self, connection_id: str, now: float) -> None:
        """No stream is left on a connection that drains."""
        slot = self._find(connection_id, State.DRAINING)
        if slot is not None:
            self._end(slot, CloseReason.DRAINED)

    def reload(self, config: ConnectionsConfig, now: float) -> None:
        """Other bounds, from now on."""
        self.config = config
        self._evaluate_at = min(self._evaluate_at, now + config.evaluation_interval)
        self._fit(now)
        self._fill(now)
        self._dial_due(now)

    # ── places ──

    def _in(self, state: State) -> list[Slot]:
        return [slot for slot in self._slots if slot.state is state]

    def _find(self, connection_id: str, *states: State) -> Slot | None:
        found = (slot for slot in self._slots if slot.connection_id == connection_id and slot.state in states)
        return next(found, None)

    def _add(self, at: float) -> Slot:
        self._made += 1
        slot = Slot(self._made, at)
        self._slots.append(slot)
        return slot

    def _fill(self, now: float) -> None:
        """As many places as there have to be, and may be."""
        while not self._stopped and self.count < min(self.config.min, max(self.ceiling, 1)):
            self._add(now)

    def _fit(self, now: float) -> None:
        """No more than there may be: first those that are not there yet, then the least needed."""
        while self.count > self.ceiling:
            unmade = [slot for slot in self._slots if slot.state in (State.WAITING, State.DIALING)]
            if unmade:
                self._end(unmade[-1], CloseReason.CEILING)
            else:
                self._drain(least_needed(self._in(State.ACTIVE)), DrainReason.SCALE_DOWN, now)

    def _look_elsewhere(self, slot: Slot, now: float) -> None:
        """A second connection to the one router that we have adds little: dial again, a few times, for another."""
        nodes = {other.ack.server_node_id for other in self._in(State.ACTIVE) if other.ack and other is not slot}
        node = slot.ack.server_node_id if slot.ack and slot.ack.connection_pool_supported else ""
        if node != self._only_node:
            self._only_node = ""
        if not node or nodes != {node} or node == self._only_node:
            return
        if slot.redials >= MAX_REDIALS:
            self._only_node = node
            return
        self._drain(slot, DrainReason.SCALE_DOWN, now)
        self._add(-math.inf).redials = slot.redials + 1  # before all others: they wait to hear whether there is one

    def _postpone(self, slot: Slot, at: float) -> None:
        """Have a place wait. With no connection left all of them do: an outage is one outage."""
        slot.at = at
        if not self._in(State.ACTIVE):
            for other in self._in(State.WAITING):
                other.at = max(other.at, at)

    def _may_dial(self, slot: Slot) -> bool:
        """The first one alone: whether there may be others is in its ack. So too after all were lost. And the second
        alone, because it may come to another router, an older one.
        """
        if len(self._in(State.ACTIVE)) > 1:
            return True
        return not self._in(State.DIALING) and slot is min(self._in(State.WAITING), key=lambda one: one.at)

    def _dial_due(self, now: float) -> None:
        for slot in self._in(State.WAITING):
            if now >= slot.at and not self._stopped and self._may_dial(slot):
                slot.step(Input.DIAL)
                slot.connection_id = self._make_id()
                self._orders.append(Dial(slot.connection_id))

    def _drain(self, slot: Slot, reason: DrainReason, now: float, timeout: float = DRAIN_TIMEOUT) -> None:
        slot.step(Input.DRAIN)
        slot.at = now + timeout
        self._orders.append(Drain(slot.connection_id, reason, timeout))

    def _end(self, slot: Slot, reason: CloseReason | None) -> None:
        slot.step(Input.END)
        self._slots.remove(slot)
        if slot.connection_id and reason is not None:
            self._orders.append(Close(slot.connection_id, reason))

    def _evaluate(self, now: float) -> None:
        active = self._in(State.ACTIVE)
        for slot in active:
            if not slot.is_stable and now >= slot.joined_at + STABLE_AFTER:
                slot.is_stable = True
                self._backoff.is_well()
        decision = self.scaler.evaluate(active, self.count, self.ceiling, self.config, now)
        if decision is Decision.SCALE_UP:
            self._add(now)
        elif decision is Decision.SCALE_DOWN:
            self._drain(least_needed(idle(active)), DrainReason.SCALE_DOWN, now)
        else:
            self._search_again(active, now)

    def _search_again(self, active: list[Slot], now: float) -> None:
        """While one router has all connections, an unused one is made anew at times: there may be another by now."""
        is_settled = len(active) == self.count == self.config.min > 1  # whoever grows dials anew anyway
        nodes = {slot.ack.server_node_id if slot.ack and slot.ack.connection_pool_supported else "" for slot in active}
        unused = [slot for slot in active if slot.report is not None and not slot.report.active_streams]
        if self._search.is_due(is_settled and len(nodes) == 1 and "" not in nodes, now) and unused:
            self._search.begun(now)
            self._drain(least_needed(unused), DrainReason.SCALE_DOWN, now)
            self._add(-math.inf).redials = MAX_REDIALS
