"""The pool against a model of plain dicts, in whatever order things happen."""

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentmesh.pool.registry.errors import AmbiguousAgentError
from agentmesh.pool.router.audit import Action
from agentmesh.pool.router.claims import Claim, Reason, Refusal
from agentmesh.pool.router.connection import Connection, Lease, LeaseState, State
from agentmesh.pool.router.invariants import violations
from agentmesh.pool.router.limits import PoolLimits
from agentmesh.pool.router.selection import is_online
from agentmesh.pool.router.table import Place, PoolTable, Registration
from agentmesh.protocols.pool import ConnEpoch

AGENTS = ("agent", "Agent", "other")
CONNECTIONS = ("c1", "c2", "c3")
LIMITS = PoolLimits(
    max_connections_per_agent=2,
    max_connections_per_token=4,
    max_connections_per_node=5,
    registrations_per_second=0,
    max_fences_per_agent=100,
)


@attrs.define
class Model:
    """What the table is to be, of plain dicts."""

    live: dict[tuple[str, str], int] = attrs.Factory(dict[tuple[str, str], int])
    tokens: dict[tuple[str, str], str] = attrs.Factory(dict[tuple[str, str], str])
    highest: dict[tuple[str, str], tuple[int, float]] = attrs.Factory(dict[tuple[str, str], tuple[int, float]])
    draining: set[tuple[str, str]] = attrs.Factory(set[tuple[str, str]])
    heard: dict[tuple[str, str], float] = attrs.Factory(dict[tuple[str, str], float])
    refused: int = 0

    def fence(self, key: tuple[str, str], now: float) -> int:
        epoch, until = self.highest.get(key, (-1, now))
        return max(self.live.get(key, -1), epoch if now < until else -1)

    def is_full(self, key: tuple[str, str], token: str) -> bool:
        if key in self.live:
            return False
        own = [one for one in self.live if one[0] == key[0]]
        of_token = [one for one in self.live if self.tokens[one] == token]
        staying = [one for one in own if one not in self.draining]
        return len(staying) >= 2 or len(own) >= 4 or len(of_token) >= 4 or len(self.live) >= 5

    def end(self, key: tuple[str, str], now: float) -> None:
        self.highest[key] = (self.live.pop(key), now + LIMITS.fence_horizon)
        self.draining.discard(key)


class Tables(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.table, self.model = PoolTable("n1", LIMITS), Model()
        self.all: list[Connection] = []
        self.newest: dict[tuple[str, str], Connection] = {}
        self.leases: list[Lease] = []
        self.written: list[tuple[Action, int]] = []

    @rule(
        agent=st.sampled_from(AGENTS),
        name=st.sampled_from(CONNECTIONS),
        epoch=st.integers(0, 5),
        token=st.sampled_from(["t1", "t2"]),
    )
    def hello(self, agent: str, name: str, epoch: int, token: str) -> None:
        key = (agent, name)
        claim = Claim(agent_id=agent, instance_id="i", connection_id=name, epoch=ConnEpoch(epoch), token_id=token)
        place = self.table.begin(claim, self.now)
        if epoch <= self.model.fence(key, self.now):
            assert isinstance(place, Refusal)
            assert place.reason is Reason.STALE_EPOCH
            self.model.refused += 1
        elif self.model.is_full(key, token):
            assert isinstance(place, Refusal)
            assert place.reason is not Reason.STALE_EPOCH
            self.model.refused += 1
        else:
            assert isinstance(place, Place)
            registration = self.table.complete(place, claim.epoch, object(), self.now)
            assert isinstance(registration, Registration)
            assert (registration.replaced is not None) == (key in self.model.live)
            if registration.replaced is not None:
                self.expect_ended(registration.replaced, registration.ended)
                self.model.end(key, self.now)
            self.model.live[key], self.model.tokens[key], self.model.heard[key] = epoch, token, self.now
            self.all.append(registration.connection)
            self.newest[key] = registration.connection  # an epoch may come again, once it is forgotten

    @rule(agent=st.sampled_from(AGENTS), name=st.sampled_from(CONNECTIONS))
    def given_up(self, agent: str, name: str) -> None:
        """A registration that the registry does not like leaves nothing."""
        epoch = ConnEpoch(self.model.fence((agent, name), self.now) + 1)
        claim = Claim(agent_id=agent, instance_id="i", connection_id=name, epoch=epoch, token_id="t1")
        place = self.table.begin(claim, self.now)
        if isinstance(place, Refusal):
            self.model.refused += 1
        else:
            self.table.abandon(place)

    @precondition(lambda self: self.all)
    @rule(data=st.data())
    def eof(self, data: st.DataObject) -> None:
        """Of any session that ever was, perhaps long replaced."""
        connection = data.draw(st.sampled_from(self.all))
        key = (connection.claim.agent_id, connection.connection_id)
        current = connection.state is not State.CLOSED
        assert current == (key in self.model.live and self.newest[key] is connection)
        ended = self.table.close(connection, self.now)
        if current:
            self.expect_ended(connection, ended)
            self.model.end(key, self.now)
        else:
            assert ended == ()

    def expect_ended(self, connection: Connection, ended: tuple[Lease, ...]) -> None:
        mine = [lease for lease in self.leases if lease.connection is connection]
        assert set(ended) == set(mine)
        assert all(lease.state is LeaseState.ENDED for lease in ended)
        self.leases = [lease for lease in self.leases if lease.connection is not connection]

    @precondition(lambda self: self.all)
    @rule(data=st.data())
    def late_frame(self, data: st.DataObject) -> None:
        connection = data.draw(st.sampled_from(self.all))
        key = (connection.claim.agent_id, connection.connection_id)
        before = connection.heard_at
        connection.heard(self.now, 0.1)
        if connection.state is State.CLOSED:
            assert connection.heard_at == before
        else:
            self.model.heard[key] = self.now

    @precondition(lambda self: self.model.live)
    @rule(data=st.data())
    def drain(self, data: st.DataObject) -> None:
        agent, name = key = data.draw(st.sampled_from(sorted(self.model.live)))
        pool = self.table.get(agent)
        assert pool is not None
        assert pool.by_id[name].drain()
        self.model.draining.add(key)

    @precondition(lambda self: self.model.live)
    @rule(data=st.data())
    def open(self, data: st.DataObject) -> None:
        agent, name = data.draw(st.sampled_from(sorted(self.model.live)))
        pool = self.table.get(agent)
        assert pool is not None
        lease = pool.by_id[name].reserve(self.now, "")
        lease.stream_id = 1  # on all of them
        self.leases.append(lease)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), how=st.sampled_from(["accept", "fail", "end"]))
    def go_on(self, data: st.DataObject, how: str) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        if how == "accept" and lease.state is LeaseState.RESERVED:
            lease.accept(self.now)
            return
        if how == "fail" and lease.state is LeaseState.RESERVED:
            lease.fail(self.now, blames_connection=False)
        else:
            lease.end()
        self.leases.remove(lease)

    @rule(seconds=st.sampled_from([1.0, 20.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.table.expire(self.now)
        self.written += [(event.action, event.count) for event in self.table.audit.take(self.now)]

    @invariant()
    def the_table_is_the_model(self) -> None:
        live = {(pool.agent_id, one.connection_id): one.epoch for pool in self.table for one in pool.connections}
        assert live == self.model.live
        assert len(self.table) == len(live)

    @invariant()
    def gauges_are_the_sizes_of_what_they_count(self) -> None:
        for pool in self.table:
            own = [lease for lease in self.leases if lease.connection.claim.agent_id == pool.agent_id]
            assert pool.active_streams == len(own)
            for connection in pool.connections:
                assert connection.leases == {lease for lease in own if lease.connection is connection}
        assert all(one.active_streams == 0 for one in self.all if one.state is State.CLOSED)

    @invariant()
    def online_is_one_thing(self) -> None:
        for agent in AGENTS:
            fresh = [
                key
                for key in self.model.live
                if key[0] == agent and key not in self.model.draining and self.now - self.model.heard[key] <= 25.0
            ]
            assert is_online(self.table.get(agent), LIMITS, self.now) == bool(fresh)

    @invariant()
    def names_find_what_there_is(self) -> None:
        both = self.table.get("agent"), self.table.get("Agent")
        for name in ("agent", "AGENT"):
            try:
                assert self.table.lookup(name) in both
            except AmbiguousAgentError:
                assert None not in both
            else:
                assert None in both

    @invariant()
    def it_finds_nothing_wrong_with_itself(self) -> None:
        assert violations(self.table, self.now) == []

    @invariant()
    def nothing_grows(self) -> None:
        fenced = sum(len(pool.fences) for pool in self.table)
        assert fenced <= len(AGENTS) * len(CONNECTIONS)
        assert len(list(self.table)) <= len(AGENTS)

    def teardown(self) -> None:
        self.written += [(event.action, event.count) for event in self.table.audit.close()]
        rejected = sum(count for action, count in self.written if action is Action.REJECTED)
        assert rejected == sum(self.table.refused.values()) == self.model.refused


TestTables = Tables.TestCase
TestTables.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
