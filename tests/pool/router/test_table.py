import pytest

from agentmesh.pool.registry.errors import AmbiguousAgentError
from agentmesh.pool.router.audit import Action
from agentmesh.pool.router.claims import Claim, ConnectionKey, Reason, Refusal
from agentmesh.pool.router.connection import Connection, Lease, LeaseState, State
from agentmesh.pool.router.limits import PoolLimits
from agentmesh.pool.router.table import PoolTable, Registration
from agentmesh.protocols.pool import ConnEpoch, Stats


def claim(
    connection_id: str = "c1",
    epoch: int = 1,
    *,
    agent_id: str = "agent",
    instance_id: str = "i1",
    token_id: str = "t1",
    boot: str = "",
) -> Claim:
    return Claim(
        agent_id=agent_id,
        instance_id=instance_id,
        connection_id=connection_id,
        epoch=ConnEpoch(epoch),
        token_id=token_id,
        boot=boot,
    )


def join(table: PoolTable, wanted: Claim, now: float = 0.0) -> Registration:
    place = table.begin(wanted, now)
    assert not isinstance(place, Refusal), place
    registration = table.complete(place, wanted.epoch, object(), now)
    assert isinstance(registration, Registration), registration
    return registration


def refusal(table: PoolTable, wanted: Claim, now: float = 0.0) -> Reason:
    refused = table.begin(wanted, now)
    assert isinstance(refused, Refusal)
    return refused.reason


def connections(table: PoolTable, agent_id: str = "agent") -> list[tuple[str, int]]:
    pool = table.get(agent_id)
    return [] if pool is None else [(one.connection_id, one.epoch) for one in pool.connections]


def stream(connection: Connection, stream_id: int) -> Lease:
    lease = connection.reserve(0.0, "")
    lease.stream_id = stream_id
    lease.accept(0.0)
    return lease


def actions(table: PoolTable, now: float = 1000.0) -> list[Action]:
    return [event.action for event in table.audit.take(now)]


def test_two_processes_and_many_connections_are_one_agent() -> None:
    table = PoolTable("n1")
    for name, instance in (("c2", "i1"), ("c1", "i1"), ("c3", "i2")):
        join(table, claim(name, instance_id=instance))
    assert connections(table) == [("c1", 1), ("c2", 1), ("c3", 1)]  # whoever came first
    pool = table.get("agent")
    assert pool is not None
    assert pool.instances == {"i1", "i2"}
    assert actions(table) == [Action.REGISTERED] * 3


def test_a_higher_epoch_replaces_that_connection_and_only_that() -> None:
    table = PoolTable("n1")
    first, other = join(table, claim("c1", 1)).connection, join(table, claim("c2", 1)).connection
    mine, its = stream(first, 1), stream(other, 1)  # the same number, on two connections
    registration = join(table, claim("c1", 2))
    assert (registration.replaced, registration.ended) == (first, (mine,))
    assert (mine.state, its.state, first.state) == (LeaseState.ENDED, LeaseState.ACTIVE, State.CLOSED)
    assert connections(table) == [("c1", 2), ("c2", 1)]
    assert actions(table) == [Action.REGISTERED, Action.REGISTERED, Action.REPLACED]


@pytest.mark.parametrize("epoch", [0, 4, 5])
def test_an_equal_or_lower_epoch_is_rejected(epoch: int) -> None:
    table = PoolTable("n1")
    first = join(table, claim("c1", 5)).connection
    assert refusal(table, claim("c1", epoch)) is Reason.STALE_EPOCH
    assert (connections(table), first.state, table.refused[Reason.STALE_EPOCH]) == ([("c1", 5)], State.OPEN, 1)
    assert actions(table) == [Action.REGISTERED, Action.REJECTED]


def test_the_epoch_that_the_registry_gives_counts() -> None:
    table = PoolTable("n1")
    place = table.begin(claim("c1", 0), 0.0)
    assert not isinstance(place, Refusal)
    registered = table.complete(place, ConnEpoch(9), "session", 0.0)
    assert isinstance(registered, Registration)
    assert registered.connection.key == ConnectionKey("agent", "c1", ConnEpoch(9))
    place = table.begin(claim("c1", 10), 0.0)
    assert not isinstance(place, Refusal)
    assert isinstance(table.complete(place, ConnEpoch(9), "session", 0.0), Refusal)
    assert connections(table) == [("c1", 9)]


def test_an_epoch_is_remembered_for_a_while_after_the_end() -> None:
    table = PoolTable("n1", PoolLimits(fence_horizon=100.0))
    table.close(join(table, claim("c1", 5)).connection, 10.0)
    assert refusal(table, claim("c1", 5), 109.9) is Reason.STALE_EPOCH
    assert table.get("agent") is not None
    table.expire(110.0)
    assert table.get("agent") is None
    join(table, claim("c1", 1), 110.0)


def test_remembered_epochs_are_bounded() -> None:
    table = PoolTable("n1", PoolLimits(max_fences_per_agent=3, registrations_per_second=0))
    for n in range(50):
        table.close(join(table, claim(f"c{n}")).connection, 0.0)
    pool = table.get("agent")
    assert pool is not None
    assert list(pool.fences) == ["c47", "c48", "c49"]


def test_what_was_replaced_cannot_take_its_successor_along() -> None:
    """The end of an old session, noticed late, and what still comes of it."""
    table = PoolTable("n1")
    old = join(table, claim("c1", 1)).connection
    new = join(table, claim("c1", 2)).connection
    lease = stream(new, 1)
    assert table.close(old, 5.0) == ()
    old.heard(99.0, 0.5)
    old.take_stats(Stats(active_streams=7), 99.0)
    assert not old.drain()
    assert (connections(table), lease.state, new.heard_at) == ([("c1", 2)], LeaseState.ACTIVE, 0.0)
    assert (old.heard_at, old.rtt, old.stats) == (0.0, None, Stats())


def test_an_end_takes_its_own_streams_and_no_others() -> None:
    table = PoolTable("n1")
    one, other = join(table, claim("c1")).connection, join(table, claim("c2")).connection
    mine, its = [stream(one, n) for n in (1, 2)], stream(other, 1)
    assert table.close(one, 1.0, "lost") == tuple(mine)
    assert (its.state, other.active_streams, one.active_streams) == (LeaseState.ACTIVE, 1, 0)
    for lease in mine:
        lease.end()  # once more: nothing is counted down twice
    assert (one.active_streams, len(table)) == (0, 1)


# ── names ──


def test_any_case_finds_the_agent_and_two_are_a_question() -> None:
    table = PoolTable("n1")
    join(table, claim(agent_id="Agent-Box"))
    assert table.lookup("aGENT-bOX") is table.lookup("agent-box") is table.get("Agent-Box")
    assert table.get("agent-box") is None
    other = join(table, claim("c2", agent_id="agent-box")).connection
    for name in ("agent-box", "AGENT-BOX"):
        with pytest.raises(AmbiguousAgentError):
            table.lookup(name)
    table.close(other, 0.0)
    table.expire(1000.0)
    assert table.lookup("agent-box") is table.get("Agent-Box")
    assert table.lookup("nobody") is None


def test_two_processes_with_one_instance_id_are_noticed_and_stay() -> None:
    table = PoolTable("n1")
    assert not join(table, claim("c1", boot="b1")).cloned
    assert not join(table, claim("c2", boot="b1")).cloned
    assert not join(table, claim("c3", boot="b2", instance_id="i2")).cloned
    assert not join(table, claim("c4", boot="")).cloned
    assert join(table, claim("c5", boot="b2")).cloned
    assert len(connections(table)) == 5
    assert actions(table).count(Action.CLONED) == 1


# ── limits ──


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (PoolLimits(max_connections_per_agent=3), Reason.MAX_CONNECTIONS_PER_AGENT),
        (PoolLimits(max_connections_per_token=3), Reason.MAX_CONNECTIONS_PER_TOKEN),
        (PoolLimits(max_connections_per_node=3), Reason.MAX_CONNECTIONS_PER_NODE),
    ],
)
def test_the_newcomer_is_refused_and_a_return_never_is(limits: PoolLimits, reason: Reason) -> None:
    table = PoolTable("n1", limits)
    for n in range(2):
        join(table, claim(f"c{n}"))
    place = table.begin(claim("c2"), 0.0)  # counts while it is under way
    assert not isinstance(place, Refusal)
    assert refusal(table, claim("c3")) is reason
    table.abandon(place)
    table.abandon(place)
    kept = join(table, claim("c2")).connection
    join(table, claim("c0", 2))
    assert refusal(table, claim("c3")) is reason
    assert (len(table), kept.state) == (3, State.OPEN)
    table.close(kept, 0.0)
    join(table, claim("c3"))


def test_a_drain_makes_room_for_its_successor_but_not_for_ever() -> None:
    table = PoolTable("n1", PoolLimits(max_connections_per_agent=2))
    for n in range(4):
        assert join(table, claim(f"c{n}")).connection.drain()
    assert refusal(table, claim("c4")) is Reason.MAX_CONNECTIONS_PER_AGENT


def test_a_credential_registers_so_fast_and_no_faster() -> None:
    table = PoolTable("n1", PoolLimits(max_connections_per_agent=4, registrations_per_second=5.0))
    for n in range(8):
        table.close(join(table, claim(f"c{n}")).connection, 0.0)
    refused = table.begin(claim("c9"), 0.0)
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.REGISTRATION_RATE
    assert refused.retry_after == pytest.approx(0.2)
    join(table, claim("c9", token_id="t2"))
    join(table, claim("c10"), 0.2)


def test_the_same_connection_registers_once_at_a_time() -> None:
    table = PoolTable("n1")
    table.begin(claim("c1", 1), 0.0)
    assert refusal(table, claim("c1", 2)) is Reason.REGISTERING


def test_refusals_are_counted_and_written_down_once_a_minute() -> None:
    table = PoolTable("n1", PoolLimits(max_connections_per_agent=1))
    join(table, claim("c1"))
    for n in range(100):
        refusal(table, claim(f"x{n}"), 0.5 * n)
    events = [event for event in table.audit.take(1000.0) if event.action is Action.REJECTED]
    assert len(events) == 2
    assert sum(event.count for event in events) == 100 == table.refused[Reason.MAX_CONNECTIONS_PER_AGENT]


def test_somebody_elses_refusal_is_written_down_too() -> None:
    table = PoolTable("n1")
    assert table.refuse(claim(), Reason.SHUTTING_DOWN, 0.0, 7.0) == Refusal(Reason.SHUTTING_DOWN, 7.0)
    assert actions(table) == [Action.REJECTED]


@pytest.mark.parametrize(
    "settings",
    [
        {"max_connections_per_agent": 513},
        {"max_connections_per_agent": -1},
        {"max_connections_per_token": -1},
        {"registrations_per_second": -0.1},
        {"fresh_timeout": 0},
        {"max_fences_per_agent": 0},
    ],
)
def test_limits_are_checked(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        PoolLimits(**settings)


def test_zero_is_no_limit_but_the_default_number_of_connections() -> None:
    assert PoolLimits(max_connections_per_agent=0).max_connections_per_agent == 64
    table = PoolTable(
        "n1", PoolLimits(max_connections_per_token=0, max_connections_per_node=0, registrations_per_second=0)
    )
    for n in range(300):
        join(table, claim(f"c{n}", agent_id=f"a{n // 60}"))
    assert len(table) == 300
