from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.pool.metrics import busiest, connection_label
from agentmesh.pool.router.claims import Claim
from agentmesh.pool.router.connection import Connection, Lease
from agentmesh.pool.router.limits import PoolLimits
from agentmesh.pool.router.remotes import Remote, RemotePolicy, pick_remote
from agentmesh.pool.router.score import score
from agentmesh.pool.router.selection import (
    NotChosen,
    best_rtt_of,
    healthy,
    is_online,
    load_of,
    pick,
    why_not,
)
from agentmesh.pool.router.table import Pool
from agentmesh.pool.router.trace import MAX_TRACES, Scope, TraceRing, WhyNot
from agentmesh.protocols.pool import CAPABILITIES, Code, ConnEpoch, Stats

LIMITS = PoolLimits(max_streams_per_connection=10)
OLD = -100.0  # past its slow start


def connect(pool: Pool, name: str, *, capabilities: Sequence[str] = (), at: float = OLD) -> Connection:
    claim = Claim(
        agent_id=pool.agent_id,
        instance_id="i",
        connection_id=name,
        epoch=ConnEpoch(1),
        token_id="t",
        capabilities=frozenset(capabilities),
    )
    connection = pool.by_id[name] = Connection(claim, ConnEpoch(1), object(), at)
    connection.heard(0.0)
    return connection


def pool_of(*names: str) -> tuple[Pool, list[Connection]]:
    pool = Pool("agent")
    return pool, [connect(pool, name) for name in names]


def open_on(connection: Connection, count: int) -> None:
    for _ in range(count):
        connection.reserve(0.0, "").accept(0.0)


def fail(connection: Connection, now: float = 0.0, count: int = 5) -> None:
    for _ in range(count):
        connection.reserve(now, "").fail(now, blames_connection=True)


def chosen(pool: Pool, now: float = 0.0, protocol: str = "tcp", tried: Sequence[Connection] = ()) -> Lease:
    lease = pick(pool, protocol=protocol, limits=LIMITS, now=now, tried=tried, trace_id="x")
    assert isinstance(lease, Lease), lease
    return lease


def reason(pool: Pool, now: float = 0.0, protocol: str = "tcp") -> NotChosen:
    found = pick(pool, protocol=protocol, limits=LIMITS, now=now)
    assert isinstance(found, NotChosen)
    return found


def test_the_least_loaded_is_chosen_and_ties_go_by_id() -> None:
    pool, (c1, c2, c3) = pool_of("c1", "c2", "c3")
    open_on(c1, 2)
    open_on(c2, 1)
    open_on(c3, 1)
    assert chosen(pool).connection is c2
    assert chosen(pool).connection is c3  # the place on c2 was taken by the choice itself


# ── the five tests ──


BREAKAGES: list[tuple[Callable[[Connection], object], WhyNot, str]] = [
    (Connection.drain, WhyNot.NOT_OPEN, "tcp"),
    (lambda one: None, WhyNot.UNSUPPORTED, "icmp-echo"),
    (lambda one: setattr(one, "heard_at", -26.0), WhyNot.STALE, "tcp"),
    (fail, WhyNot.FAILING, "tcp"),
    (lambda one: open_on(one, 10), WhyNot.FULL, "tcp"),
]


@pytest.mark.parametrize(("break_it", "why", "protocol"), BREAKAGES)
def test_each_test_alone_keeps_a_connection_out(
    break_it: Callable[[Connection], object], why: WhyNot, protocol: str
) -> None:
    pool, (c1,) = pool_of("c1")
    other = connect(pool, "c2", capabilities=["stream_icmp_echo.v1"])
    break_it(c1)
    assert why_not(c1, protocol, LIMITS, 0.0) is why
    assert chosen(pool, protocol=protocol).connection is other


@pytest.mark.parametrize(
    ("why", "code", "retryable"),
    [
        (WhyNot.NOT_OPEN, Code.AGENT_OFFLINE, True),
        (WhyNot.STALE, Code.AGENT_OFFLINE, True),
        (WhyNot.FAILING, Code.AGENT_OFFLINE, True),
        (WhyNot.FULL, Code.QUEUE_FULL, True),
        (WhyNot.UNSUPPORTED, Code.UNSUPPORTED_CAPABILITY, False),
    ],
)
def test_a_client_hears_why_there_was_none(why: WhyNot, code: Code, retryable: bool) -> None:
    result = NotChosen(Counter({why: 2, WhyNot.NOT_OPEN: 1})).result
    assert (result.code, result.retryable) == (code, retryable)
    assert not result.accepted


def test_an_agent_without_connections_is_offline() -> None:
    found = reason(Pool("agent"))
    assert (found.dominant, found.result.code) == (None, Code.AGENT_OFFLINE)


def test_a_session_with_every_capability_serves_every_protocol() -> None:
    pool = Pool("agent")
    connect(pool, "c1", capabilities=[*CAPABILITIES, "stream_icmp_echo.v1"])
    for protocol in ("tcp", "http", "https", "icmp-echo"):
        chosen(pool, protocol=protocol)
    assert reason(pool, protocol="carrier-pigeon").dominant is WhyNot.UNSUPPORTED


def test_an_agents_streams_are_bounded_as_a_whole() -> None:
    pool, _ = pool_of("c1", "c2")
    limits = PoolLimits(max_streams_per_agent=3)
    for _ in range(3):
        assert isinstance(pick(pool, protocol="tcp", limits=limits, now=0.0), Lease)
    found = pick(pool, protocol="tcp", limits=limits, now=0.0)
    assert isinstance(found, NotChosen)
    assert found.dominant is WhyNot.FULL


# ── spreading ──


@given(st.integers(1, 8), st.integers(1, 60))
def test_opens_at_once_spread_evenly(connections: int, opens: int) -> None:
    pool, made = pool_of(*(f"c{n}" for n in range(connections)))
    limits = PoolLimits()
    for _ in range(opens):
        assert isinstance(pick(pool, protocol="tcp", limits=limits, now=0.0), Lease)
    counts = [connection.active_streams for connection in made]
    assert max(counts) - min(counts) <= 1


def test_streams_one_after_another_use_all_connections() -> None:
    """With nothing open they are equal, but for their round trips and what waits: chance has no part in it."""
    pool, made = pool_of("c1", "c2", "c3", "c4")
    used: Counter[str] = Counter()
    open_ones: list[Lease] = []
    for _ in range(1000):
        lease = chosen(pool)
        lease.accept(0.0)
        used[lease.connection.connection_id] += 1
        open_ones.append(lease)
        if len(open_ones) > 6:
            open_ones.pop(0).end()
    assert set(used) == {connection.connection_id for connection in made}
    assert max(used.values()) < 400


def test_a_newcomer_is_not_given_everything() -> None:
    pool, (c1,) = pool_of("c1")
    open_on(c1, 4)
    newcomer = connect(pool, "c2", at=0.0)
    assert chosen(pool, now=0.0).connection is c1
    assert chosen(pool, now=9.0).connection is newcomer


def test_a_far_connection_waits_behind_and_a_far_agent_does_not() -> None:
    pool, (c1, c2) = pool_of("c1", "c2")
    c1.heard(0.0, rtt=0.3)
    c2.heard(0.0, rtt=0.1)
    assert chosen(pool).connection is c2
    assert score(load_of(c1, 0.0), best_rtt_of([load_of(c1, 0.0)])) == 0


def test_a_full_queue_on_either_side_counts() -> None:
    pool, (c1, c2) = pool_of("c1", "c2")
    c1.queued_bytes, c1.queue_limit_bytes = 50, 100
    assert chosen(pool).connection is c2
    c2.take_stats(Stats(queued_bytes=90, queue_limit_bytes=100), 0.0)
    for _ in range(3):
        assert chosen(pool).connection is c1


# ── properties ──

Knobs = list[tuple[int, float | None, int, bool, float, float]]
KNOBS = st.lists(
    st.tuples(
        st.integers(0, 12),  # streams
        st.none() | st.floats(0, 2),  # rtt
        st.integers(0, 5),  # failures
        st.booleans(),  # drains
        st.floats(-40, 0),  # heard
        st.floats(-20, 0),  # registered
    ),
    max_size=6,
)


def build(knobs: Knobs, order: Sequence[int]) -> Pool:
    pool = Pool("agent")
    for n in order:
        streams, rtt, failures, drains, heard, registered = knobs[n]
        connection = connect(pool, f"c{n}", at=registered)
        connection.heard(0.0, rtt)
        connection.heard_at = heard
        open_on(connection, streams)
        fail(connection, count=failures)
        if drains:
            connection.drain()
    return pool


@given(KNOBS)
def test_what_is_chosen_passes_every_test_and_costs_least(knobs: Knobs) -> None:
    order = list(range(len(knobs)))
    pool, shuffled = build(knobs, order), build(knobs, order[::-1])
    limits = LIMITS
    alive = set(healthy(pool, limits, 0.0))
    eligible = {one for one in alive if one.active_streams < 10}
    loads = {one: load_of(one, 0.0) for one in eligible}
    best = best_rtt_of(loads.values())
    ranking = sorted(eligible, key=lambda one: (score(loads[one], best), one.connection_id))
    found, again = (pick(one, protocol="tcp", limits=limits, now=0.0) for one in (pool, shuffled))
    if not ranking:
        assert isinstance(found, NotChosen)
        assert isinstance(again, NotChosen)
        assert found == again
        return
    assert isinstance(found, Lease)
    assert isinstance(again, Lease)
    assert found.connection is ranking[0]
    assert again.connection.connection_id == found.connection.connection_id
    [trace] = pool.traces.latest()
    assert trace.chosen == found.connection.connection_id
    assert {one.connection_id for one in trace.considered if one.score is not None} == {
        one.connection_id for one in eligible
    }


@given(KNOBS)
def test_without_the_chosen_one_the_next_is_chosen(knobs: Knobs) -> None:
    """Where the round trips are left out: the fastest is what all others are measured against."""
    pool = build(
        [(streams, None, failures, drains, heard, at) for streams, _, failures, drains, heard, at in knobs],
        range(len(knobs)),
    )
    found = pick(pool, protocol="tcp", limits=LIMITS, now=0.0)
    if isinstance(found, Lease):
        found.end()
        next_one = pick(pool, protocol="tcp", limits=LIMITS, now=0.0, tried=[found.connection])
        [first, second] = pool.traces.latest()
        scores = sorted((one.score, one.connection_id) for one in first.considered if one.score is not None)
        assert second.chosen == (scores[1][1] if len(scores) > 1 else "")
        assert isinstance(next_one, NotChosen) == (len(scores) == 1)


@given(KNOBS)
def test_a_connection_that_cannot_be_chosen_changes_nothing(knobs: Knobs) -> None:
    names: list[str] = []
    for extra in (False, True):
        pool = build(knobs, range(len(knobs)))
        if extra:
            drained = connect(pool, "c0-drained")
            drained.heard(0.0, rtt=0.0)
            drained.drain()
        found = pick(pool, protocol="tcp", limits=LIMITS, now=0.0)
        names.append(found.connection.connection_id if isinstance(found, Lease) else "")
    assert names[0] == names[1]


# ── ejection ──


@given(st.integers(1, 7), st.integers(0, 7))
def test_never_more_than_half_are_left_out(total: int, bad: int) -> None:
    pool, made = pool_of(*(f"c{n}" for n in range(total)))
    for connection in made[:bad]:
        fail(connection)
    left = healthy(pool, LIMITS, 0.0)
    assert len(left) == total - min(bad, total // 2)
    assert is_online(pool, LIMITS, 0.0)
    assert isinstance(pick(pool, protocol="tcp", limits=LIMITS, now=0.0), Lease)


def test_a_trial_is_one_stream_and_decides() -> None:
    pool, (c1, c2, c3) = pool_of("c1", "c2", "c3")
    fail(c1)
    open_on(c2, 5)
    open_on(c3, 5)
    for connection in (c1, c2, c3):
        connection.heard(31.0)
    trial = chosen(pool, now=31.0)
    assert (trial.connection, trial.trial) == (c1, True)
    assert chosen(pool, now=31.0).connection is not c1
    trial.accept(31.0)
    assert chosen(pool, now=31.0).connection is c1


def test_a_target_that_is_at_fault_is_not_held_against_the_connection() -> None:
    _, (c1, _) = pool_of("c1", "c2")
    for _ in range(20):
        c1.reserve(0.0, "").fail(0.0, blames_connection=False)
    assert why_not(c1, "tcp", LIMITS, 0.0) is None


# ── remote ──


def remote(name: str, active_streams: int = 0, health_score: int = 100, stats_age: float = 0.0) -> Remote:
    return Remote(
        agent_id="agent",
        connection_id=name,
        epoch=ConnEpoch(1),
        server_node_id="n2",
        active_streams=active_streams,
        health_score=health_score,
        stats_age=stats_age,
    )


def test_a_remote_connection_is_the_least_loaded_of_what_is_known() -> None:
    pool = Pool("agent")
    remotes = [
        remote("c3", active_streams=2),
        remote("c2", active_streams=1),
        remote("c1", active_streams=1, stats_age=60),
    ]
    found = pick_remote(pool.traces, remotes, protocol="tcp", limits=LIMITS, now=0.0)
    assert found == remotes[1]
    assert pool.traces.latest()[-1].scope is Scope.REMOTE


def test_two_drawn_at_random_do_not_all_go_to_the_same() -> None:
    pool, remotes = Pool("agent"), [remote(f"c{n}", active_streams=n) for n in range(4)]
    found = pick_remote(
        pool.traces,
        remotes,
        protocol="tcp",
        limits=LIMITS,
        now=0.0,
        policy=RemotePolicy.P2C,
        sample=lambda population, count: population[-count:],
    )
    assert found == remotes[2]


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (remote("c1", health_score=0), WhyNot.FAILING),
        (remote("c1", active_streams=10), WhyNot.FULL),
    ],
)
def test_a_remote_connection_that_is_not_chosen(one: Remote, why: WhyNot) -> None:
    found = pick_remote(TraceRing(), [one], protocol="tcp", limits=LIMITS, now=0.0)
    assert isinstance(found, NotChosen)
    assert found.dominant is why
    found = pick_remote(TraceRing(), [one], protocol="icmp-echo", limits=LIMITS, now=0.0)
    assert isinstance(found, NotChosen)
    assert found.dominant is WhyNot.UNSUPPORTED


# ── what is left ──


def test_the_last_choices_are_kept() -> None:
    pool, _ = pool_of("c1")
    for n in range(MAX_TRACES + 5):
        lease = pick(pool, protocol="tcp", limits=LIMITS, now=0.0, trace_id=f"t{n}")
        assert isinstance(lease, Lease)
        lease.end()
    assert (len(pool.traces), pool.traces.find("t4"), pool.active_streams) == (MAX_TRACES, None, 0)
    trace = pool.traces.find("t5")
    assert trace is not None
    assert trace.chosen == "c1"


def test_only_the_busiest_agents_have_labels_of_their_own() -> None:
    quiet, (c1,) = pool_of("c1")
    busy = Pool("busy")
    c2 = connect(busy, "c2")
    open_on(c2, 3)
    labelled = busiest([quiet, busy], most=1)
    assert (connection_label(c1, labelled), connection_label(c2, labelled)) == ("", "c2")
