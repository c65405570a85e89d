"""The pool of one router: agent -> connection -> session, fenced by epochs, within limits.

Everything here is synchronous: nothing comes between a decision and its effect. A registration has two steps, because
the registry of the cluster is asked in between: `begin` takes a place, `complete` fills it or `abandon` gives it back.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator

import attrs

from agentmesh.pool.registry.errors import AmbiguousAgentError
from agentmesh.pool.router.audit import Action, Audit, AuditEvent
from agentmesh.pool.router.claims import Claim, Reason, Refusal
from agentmesh.pool.router.connection import Connection, Input, Lease, State
from agentmesh.pool.router.limits import PoolLimits, is_full
from agentmesh.pool.router.trace import TraceBook, TraceRing
from agentmesh.protocols.pool import ConnEpoch
from agentmesh.runtime.meters import Meter
from agentmesh.runtime.yamux import Allowance

RETRY_AFTER_FULL = 5.0  # seconds


class Pool:
    """The connections of one agent. Its `connections` are in the order of their IDs, whoever came first."""

    def __init__(self, agent_id: str, traces: TraceRing | None = None) -> None:
        self.agent_id = agent_id
        self.traces = TraceRing() if traces is None else traces
        self.fences: OrderedDict[str, tuple[ConnEpoch, float]] = OrderedDict()  # of those that ended: until when
        self.by_id: dict[str, Connection] = {}
        self.places: dict[str, Place] = {}
        self.ended: Counter[str] = Counter()  # connections, by the reason

    @property
    def connections(self) -> tuple[Connection, ...]:
        return tuple(self.by_id[connection_id] for connection_id in sorted(self.by_id))

    @property
    def active_streams(self) -> int:
        return sum(connection.active_streams for connection in self.by_id.values())

    @property
    def instances(self) -> frozenset[str]:
        return frozenset(connection.claim.instance_id for connection in self.by_id.values())

    @property
    def is_empty(self) -> bool:
        return not (self.by_id or self.places or self.fences)


@attrs.define(eq=False)
class Place:
    """A registration under way. It counts against every limit."""

    claim: Claim


@attrs.frozen
class Registration:
    """A connection is in the pool.

    Attributes:
        replaced: the life of the same connection that it put an end to.
        ended: that life's streams: they are over.
        cloned: another process runs with the same instance ID.
    """

    connection: Connection
    replaced: Connection | None = None
    ended: tuple[Lease, ...] = ()
    cloned: bool = False


class PoolTable:
    """All pools of a router.

    Args:
        node_id: the router's.
        limits: the bounds.

    Attributes:
        audit: what is to be written down.
        refused: how many connections were not taken, by reason.
        traces: what was chosen, and why.
    """

    def __init__(self, node_id: str, limits: PoolLimits | None = None) -> None:
        self.node_id = node_id
        self.limits = limits or PoolLimits()
        self.audit = Audit()
        self.refused = dict.fromkeys(Reason, 0)
        self.traces = TraceBook()
        self._pools: dict[str, Pool] = {}
        self._spellings: dict[str, set[str]] = {}  # agent IDs by their folded form
        self._tokens: Counter[str] = Counter()  # connections and places of each credential
        self._rates = self._make_rates()

    def _make_rates(self) -> Meter | None:
        rate = self.limits.registrations_per_second
        return Meter(Allowance(self.limits.registration_burst, rate)) if rate else None

    # ── looking up ──

    def __iter__(self) -> Iterator[Pool]:
        return iter(list(self._pools.values()))

    def __len__(self) -> int:
        """Connections, and registrations under way."""
        return self._tokens.total()

    def get(self, agent_id: str) -> Pool | None:
        """The pool of the agent that is spelt exactly so."""
        return self._pools.get(agent_id)

    def lookup(self, name: str) -> Pool | None:
        """The pool of the agent that is called so, in whatever case, as names of hosts are.

        Raises:
            AmbiguousAgentError: several are; which one is meant is nothing to guess.
        """
        spellings = self._spellings.get(name.casefold(), set())
        if len(spellings) > 1:
            raise AmbiguousAgentError(tuple(sorted(spellings)))
        return next((self._pools[agent_id] for agent_id in spellings), None)

    # ── registering ──

    def begin(self, claim: Claim, now: float) -> Place | Refusal:
        """Take a place for a connection, or say why it gets none; that is written down and counted."""
        reason = self._why_not(claim, now)
        if reason is not None:
            return self._refuse(claim, reason, now)
        if self._rates is not None and (wait := self._rates.spend(claim.token_id, now)):
            return self._refuse(claim, Reason.REGISTRATION_RATE, now, wait)
        place = Place(claim)
        self._pool_of(claim.agent_id).places[claim.connection_id] = place
        self._tokens[claim.token_id] += 1
        return place

    def complete(self, place: Place, epoch: ConnEpoch, handle: object, now: float) -> Registration | Refusal:
        """Fill a place, under the epoch that the registry has given; it is gone afterwards, either way."""
        claim = place.claim
        pool = self._pool_of(claim.agent_id)
        self.abandon(place)
        if epoch <= self._fence(pool, claim.connection_id, now):
            return self._refuse(claim, Reason.STALE_EPOCH, now)
        pool = self._pool_of(claim.agent_id)
        before, ended = pool.by_id.get(claim.connection_id), tuple[Lease, ...]()
        if before is not None:
            ended = self._remove(before, now)
        connection = pool.by_id[claim.connection_id] = Connection(claim, epoch, handle, now)
        self._tokens[claim.token_id] += 1
        self.note(Action.REGISTERED if before is None else Action.REPLACED, connection, now)
        cloned = _is_cloned(pool, connection)
        if cloned:
            self.note(Action.CLONED, connection, now)
        return Registration(connection, before, ended, cloned)

    def abandon(self, place: Place) -> None:
        """Give a place back. Does nothing when it was given back already."""
        pool = self._pools.get(place.claim.agent_id)
        if pool is not None and pool.places.get(place.claim.connection_id) is place:
            del pool.places[place.claim.connection_id]
            self._count_down(place.claim.token_id)
            self._tidy(pool)

    def refuse(self, claim: Claim, reason: Reason, now: float, retry_after: float = 0.0) -> Refusal:
        """Write down that somebody else decided against a connection: the registry, say."""
        return self._refuse(claim, reason, now, retry_after)

    def renumber(self, connection: Connection, epoch: ConnEpoch) -> None:
        """The registry has given a connection that lives a higher epoch. Its streams go on."""
        pool = self._pools.get(connection.claim.agent_id)
        is_current = pool is not None and pool.by_id.get(connection.connection_id) is connection
        if is_current and epoch > connection.epoch:
            connection.epoch = epoch

    # ── the end ──

    def close(
        self, connection: Connection, now: float, reason: str = "", action: Action = Action.CLOSED
    ) -> tuple[Lease, ...]:
        """Take one connection out, and nothing else. Its streams, which are given, are over.

        A connection that is not in the pool any more, or was replaced, is none of the pool's business.
        """
        pool = self._pools.get(connection.claim.agent_id)
        if pool is None or pool.by_id.get(connection.connection_id) is not connection:
            return ()
        ended = self._remove(connection, now)
        pool.ended[reason] += 1
        self.note(action, connection, now, reason)
        self._tidy(pool)
        return ended

    def expire(self, now: float) -> None:
        """Forget the fences whose time is over."""
        for pool in self:
            while pool.fences and (oldest := next(iter(pool.fences.values())))[1] <= now:
                del oldest
                pool.fences.popitem(last=False)
            self._tidy(pool)

    # ── inside ──

    def _why_not(self, claim: Claim, now: float) -> Reason | None:
        pool = self._pools.get(claim.agent_id) or Pool(claim.agent_id)
        if claim.connection_id in pool.places:
            return Reason.REGISTERING
        if claim.epoch <= self._fence(pool, claim.connection_id, now):
            return Reason.STALE_EPOCH
        if claim.connection_id in pool.by_id:
            return None  # it takes the place that it has
        limits = self.limits
        staying = sum(one.state is State.OPEN for one in pool.by_id.values()) + len(pool.places)
        everything = len(pool.by_id) + len(pool.places)
        most = limits.max_connections_per_agent
        if is_full(staying, most) or is_full(everything, 2 * most):
            return Reason.MAX_CONNECTIONS_PER_AGENT
        if is_full(self._tokens[claim.token_id], limits.max_connections_per_token):
            return Reason.MAX_CONNECTIONS_PER_TOKEN
        if is_full(len(self), limits.max_connections_per_node):
            return Reason.MAX_CONNECTIONS_PER_NODE
        return None

    def _fence(self, pool: Pool, connection_id: str, now: float) -> int:
        """The highest epoch that this connection has had; -1 when none is known."""
        live = pool.by_id.get(connection_id)
        ended, until = pool.fences.get(connection_id, (ConnEpoch(-1), now))
        return max(live.epoch if live else -1, ended if now < until else -1)

    def _pool_of(self, agent_id: str) -> Pool:
        pool = self._pools.get(agent_id)
        if pool is None:
            pool = self._pools[agent_id] = Pool(agent_id, self.traces.of(agent_id))
            self._spellings.setdefault(agent_id.casefold(), set()).add(agent_id)
        return pool

    def _remove(self, connection: Connection, now: float) -> tuple[Lease, ...]:
        pool = self._pools[connection.claim.agent_id]
        del pool.by_id[connection.connection_id]
        pool.fences.pop(connection.connection_id, None)
        pool.fences[connection.connection_id] = (connection.epoch, now + self.limits.fence_horizon)
        if len(pool.fences) > self.limits.max_fences_per_agent:
            pool.fences.popitem(last=False)
        self._count_down(connection.claim.token_id)
        connection.step(Input.CLOSE)
        ended = tuple(sorted(connection.leases, key=lambda lease: lease.stream_id))
        for lease in ended:
            lease.end()
        return ended

    def _count_down(self, token_id: str) -> None:
        self._tokens[token_id] -= 1
        if not self._tokens[token_id]:
            del self._tokens[token_id]

    def _tidy(self, pool: Pool) -> None:
        if pool.is_empty and self._pools.get(pool.agent_id) is pool:
            del self._pools[pool.agent_id]
            spellings = self._spellings[pool.agent_id.casefold()]
            spellings.discard(pool.agent_id)
            if not spellings:
                del self._spellings[pool.agent_id.casefold()]

    def _refuse(self, claim: Claim, reason: Reason, now: float, retry_after: float = 0.0) -> Refusal:
        self.refused[reason] += 1
        self.audit.record(self._entry(Action.REJECTED, claim, claim.epoch, now, reason))
        full = reason not in (Reason.STALE_EPOCH, Reason.IDENTITY_MISMATCH)
        return Refusal(reason, retry_after or (RETRY_AFTER_FULL if full else 0.0))

    def note(self, action: Action, connection: Connection, now: float, reason: str = "") -> None:
        """Write down what befell a connection."""
        self.audit.record(self._entry(action, connection.claim, connection.epoch, now, reason))

    def _entry(self, action: Action, claim: Claim, epoch: int, now: float, reason: str) -> AuditEvent:
        return AuditEvent(
            action=action,
            at=now,
            agent_id=claim.agent_id,
            instance_id=claim.instance_id,
            connection_id=claim.connection_id,
            server_node_id=self.node_id,
            token_id=claim.token_id,
            epoch=epoch,
            reason=reason,
        )


def _is_cloned(pool: Pool, new: Connection) -> bool:
    """Whether another process has the same instance ID: a copied state folder, most likely. Both stay."""
    others = {one.claim.boot for one in pool.by_id.values() if one.claim.instance_id == new.claim.instance_id}
    return len(others - {""} | {new.claim.boot}) > 1 and new.claim.boot != ""
