"""Hellos without end, whoever sends them and in whatever order: no limit is exceeded, no refusal goes unaccounted."""

from collections import Counter, defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from agentmesh.pool.router.audit import Action
from agentmesh.pool.router.claims import Claim, Reason, Refusal
from agentmesh.pool.router.connection import Connection, State
from agentmesh.pool.router.invariants import violations
from agentmesh.pool.router.limits import PoolLimits
from agentmesh.pool.router.table import Place, PoolTable, Registration
from agentmesh.protocols.pool import ConnEpoch

PER_AGENT, PER_TOKEN, PER_NODE, RATE = 3, 5, 8, 2.0
LIMITS = PoolLimits(
    max_connections_per_agent=PER_AGENT,
    max_connections_per_token=PER_TOKEN,
    max_connections_per_node=PER_NODE,
    registrations_per_second=RATE,
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["hello", "hello", "hello", "hello", "complete", "abandon", "close", "drain", "wait"]),
        st.integers(0, 3),  # which agent, and which token: some agents share one
        st.integers(0, 4),  # which connection
        st.sampled_from([0.0, 0.1, 1.0, 30.0]),
    ),
    max_size=120,
)


class Flood:
    def __init__(self) -> None:
        self.now = 0.0
        self.table = PoolTable("n1", LIMITS)
        self.places: list[Place] = []
        self.open: list[Connection] = []
        self.admitted: dict[str, list[float]] = defaultdict(list)
        self.refused = 0
        self.written: Counter[Action] = Counter()
        self.epoch = 0

    def hello(self, agent: int, connection: int) -> None:
        self.epoch += 1
        claim = Claim(
            agent_id=f"agent-{agent}",
            instance_id="i",
            connection_id=f"c{connection}",
            epoch=ConnEpoch(self.epoch),
            token_id=f"token-{agent // 2}",
        )
        found = self.table.begin(claim, self.now)
        if isinstance(found, Refusal):
            self.refused += 1
            assert found.retry_after > 0
        else:
            self.places.append(found)
            self.admitted[claim.token_id].append(self.now)

    def complete(self, which: int) -> None:
        if self.places:
            place = self.places.pop(which % len(self.places))
            found = self.table.complete(place, place.claim.epoch, object(), self.now)
            assert isinstance(found, Registration)
            self.open = [one for one in self.open if one is not found.replaced] + [found.connection]

    def abandon(self, which: int) -> None:
        if self.places:
            self.table.abandon(self.places.pop(which % len(self.places)))

    def close(self, which: int) -> None:
        if self.open:
            self.table.close(self.open.pop(which % len(self.open)), self.now)

    def drain(self, which: int) -> None:
        if self.open:
            self.open[which % len(self.open)].drain()

    def write(self) -> None:
        for event in self.table.audit.take(self.now):
            self.written[event.action] += event.count

    def check(self) -> None:
        """The limits, by counting anew."""
        claims = [one.claim for one in self.open] + [place.claim for place in self.places]
        assert len({(claim.agent_id, claim.connection_id) for claim in claims}) <= PER_NODE
        for token in {claim.token_id for claim in claims}:
            own = {(one.agent_id, one.connection_id) for one in claims if one.token_id == token}
            assert len(own) <= PER_TOKEN
        for agent in {claim.agent_id for claim in claims}:
            staying = {
                one.connection_id for one in self.open if one.claim.agent_id == agent and one.state is State.OPEN
            } | {place.claim.connection_id for place in self.places if place.claim.agent_id == agent}
            assert len(staying) <= PER_AGENT
        for times in self.admitted.values():
            for first, at in enumerate(times):
                since = sum(at <= other for other in times[first:])
                assert since <= LIMITS.registration_burst + RATE * (self.now - at) + 1
        assert violations(self.table, self.now) == []


@given(STEPS)
@settings(deadline=None)
def test_no_interleaving_of_hellos_exceeds_a_limit(steps: list[tuple[str, int, int, float]]) -> None:
    flood = Flood()
    for what, which, connection, seconds in steps:
        match what:
            case "hello":
                flood.hello(which, connection)
            case "complete":
                flood.complete(connection)
            case "abandon":
                flood.abandon(connection)
            case "close":
                flood.close(connection)
            case "drain":
                flood.drain(connection)
            case _:
                flood.now += seconds
                flood.write()
        flood.check()
    for event in flood.table.audit.close():
        flood.written[event.action] += event.count
    assert flood.written[Action.REJECTED] == sum(flood.table.refused.values()) == flood.refused


def test_a_flood_of_one_credential_leaves_the_others_their_places() -> None:
    flood = Flood()
    for n in range(500):
        flood.hello(0, n % 5)
        flood.now += 0.001
    assert flood.refused == sum(flood.table.refused.values()) == 500 - PER_AGENT
    assert flood.table.refused[Reason.MAX_CONNECTIONS_PER_AGENT] > 0
    flood.hello(2, 0)
    assert flood.places[-1].claim.token_id == "token-1"
    flood.check()
