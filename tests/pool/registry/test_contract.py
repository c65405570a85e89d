"""What every store promises of the five operations, and where other implementations of them broke."""

import attrs
import pytest
import trio

from agentmesh.pool.registry import (
    AmbiguousAgentError,
    EpochsExhaustedError,
    Fence,
    Held,
    IdentifierError,
    Lapsed,
    NewConnection,
    Registered,
    Released,
    Renewed,
    Stats,
    StatsReport,
    Superseded,
    Updated,
)
from agentmesh.protocols.pool import MAX_EPOCH, ConnEpoch
from tests.pool.registry.stores import Store

TTL = 90.0


def connection(connection_id: str = "conn-1", agent_id: str = "agent", node: str = "router-1") -> NewConnection:
    return NewConnection(
        agent_id=agent_id,
        connection_id=connection_id,
        instance_id="instance-1",
        server_node_id=node,
        capabilities=("stream_open_result.v1", "tcp"),
    )


async def listed(store: Store, agent_id: str = "agent", *, exact: bool = False) -> list[tuple[str, int]]:
    leases = await store.registry.list_active_by_agent(agent_id, exact=exact)
    return [(lease.connection_id, lease.connection_epoch) for lease in leases]


async def register(store: Store, new: NewConnection | None = None, proposed: int | None = None) -> Fence:
    """Register where it has to succeed."""
    outcome = await store.registry.register_connection(
        new or connection(), TTL, None if proposed is None else ConnEpoch(proposed)
    )
    assert isinstance(outcome, Registered), outcome
    return outcome.fence


async def test_a_lease_holds_all_that_was_said_of_its_connection(store: Store) -> None:
    new = connection()
    outcome = await store.registry.register_connection(new, TTL)
    assert isinstance(outcome, Registered)
    assert outcome.fence == new.fenced(1)
    assert outcome.replaced is None
    (lease,) = await store.registry.list_active_by_agent("agent")
    assert lease.fence == outcome.fence
    assert (lease.instance_id, lease.server_node_id) == ("instance-1", "router-1")
    assert lease.capabilities == new.capabilities
    assert (lease.active_streams, lease.health_score) == (0, 100)
    assert lease.expires_at == pytest.approx(outcome.expires_at, abs=0.01)
    assert 0 <= lease.stats_age < TTL


async def test_connections_of_an_agent_stand_beside_each_other_in_order(store: Store) -> None:
    for connection_id in ("conn-9", "conn-10", "Conn-1"):
        await register(store, connection(connection_id))
    await register(store, connection("conn-1", agent_id="other"))
    assert await listed(store) == [("Conn-1", 1), ("conn-10", 1), ("conn-9", 1)]
    assert await listed(store, "other") == [("conn-1", 1)]
    assert await listed(store, "nobody") == []


async def test_a_listed_connection_is_held_unless_a_higher_epoch_is_proposed(store: Store) -> None:
    first = await register(store, proposed=5)
    held = await store.registry.register_connection(connection(node="router-2"), TTL)
    assert isinstance(held, Held)
    assert (held.server_node_id, held.epoch) == ("router-1", 5)
    for stale in (0, 4, 5):
        outcome = await store.registry.register_connection(connection(node="router-2"), TTL, ConnEpoch(stale))
        assert outcome == Superseded(ConnEpoch(5))
    assert await listed(store) == [("conn-1", 5)]
    outcome = await store.registry.register_connection(connection(node="router-2"), TTL, ConnEpoch(6))
    assert isinstance(outcome, Registered)
    assert outcome.replaced == first.epoch
    (lease,) = await store.registry.list_active_by_agent("agent")
    assert (lease.server_node_id, lease.connection_epoch) == ("router-2", 6)


async def test_after_a_higher_epoch_the_old_one_changes_nothing(store: Store) -> None:
    """What a router that was away for long sends late: each is Superseded, with no effect."""
    old = await register(store)
    new = await register(store, connection(node="router-2"), proposed=2)
    (before,) = await store.registry.list_active_by_agent("agent")
    assert await store.registry.renew_connection(old, 3000) == Superseded(new.epoch)
    assert await store.registry.release_connection(old) == Superseded(new.epoch)
    report = StatsReport(old, Stats(7, 7))
    assert await store.registry.update_connection_stats([report]) == (Superseded(new.epoch),)
    (after,) = await store.registry.list_active_by_agent("agent")
    assert attrs.evolve(after, stats_age=before.stats_age) == before


async def test_releasing_an_old_life_never_ends_the_new_one(store: Store) -> None:
    old = await register(store)
    await store.advance(TTL + 1)
    new = await register(store)
    assert await store.registry.release_connection(old) == Superseded(new.epoch)
    assert await listed(store) == [("conn-1", new.epoch)]


async def test_a_lease_that_ran_out_is_not_renewed_but_registered_again_under_a_higher_epoch(store: Store) -> None:
    old = await register(store)
    await store.advance(TTL + 1)
    assert await listed(store) == []
    assert await store.registry.renew_connection(old, TTL) == Lapsed()
    assert await listed(store) == []
    new = await register(store)
    assert new.epoch > old.epoch
    assert await listed(store) == [("conn-1", new.epoch)]


async def test_renewing_moves_the_end_and_nothing_else_does(store: Store) -> None:
    fence = await register(store)
    await store.advance(TTL - 10)
    outcome = await store.registry.renew_connection(fence, TTL)
    assert isinstance(outcome, Renewed)
    await store.advance(20)
    assert await store.registry.update_connection_stats([StatsReport(fence, Stats(3, 50))]) == (Updated(),)
    (lease,) = await store.registry.list_active_by_agent("agent")
    assert (lease.active_streams, lease.health_score) == (3, 50)
    await store.advance(TTL - 15)
    assert await listed(store) == []
    assert await store.registry.update_connection_stats([StatsReport(fence, Stats())]) == (Lapsed(),)


async def test_a_released_connection_is_gone_and_its_epoch_used(store: Store) -> None:
    fence = await register(store, proposed=7)
    assert await store.registry.release_connection(fence) == Released()
    assert await listed(store) == []
    assert await store.registry.release_connection(fence) == Lapsed()
    assert await store.registry.renew_connection(fence, TTL) == Lapsed()
    outcome = await store.registry.register_connection(connection(), TTL, ConnEpoch(7))
    assert outcome == Superseded(ConnEpoch(7))
    assert (await register(store)).epoch == 8


async def test_a_fence_that_was_never_given_out_changes_nothing(store: Store) -> None:
    strange = connection().fenced(3)
    assert await store.registry.renew_connection(strange, TTL) == Lapsed()
    await register(store)
    assert await store.registry.renew_connection(strange, TTL) == Lapsed()
    assert await store.registry.release_connection(strange) == Lapsed()
    assert await store.registry.update_connection_stats([StatsReport(strange, Stats(1))]) == (Lapsed(),)
    assert await listed(store) == [("conn-1", 1)]


@pytest.mark.parametrize("epoch", [0, 1, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1])
async def test_any_epoch_of_63_bits_comes_back_as_it_went(store: Store, epoch: int) -> None:
    """A column of 32 bits once cut epochs; every renewal matched no row, and agents that lived were shown offline."""
    fence = await register(store, proposed=epoch)
    assert fence.epoch == epoch
    assert isinstance(await store.registry.renew_connection(fence, TTL), Renewed)
    assert await store.registry.update_connection_stats([StatsReport(fence, Stats(1))]) == (Updated(),)
    assert await listed(store) == [("conn-1", epoch)]
    outcome = await store.registry.register_connection(connection(), TTL, ConnEpoch(epoch))
    assert outcome == Superseded(ConnEpoch(epoch))
    assert await store.registry.release_connection(fence) == Released()


async def test_there_is_no_epoch_above_the_highest(store: Store) -> None:
    fence = await register(store, proposed=MAX_EPOCH)
    await store.registry.release_connection(fence)
    with pytest.raises(EpochsExhaustedError):
        await store.registry.register_connection(connection(), TTL)
    await register(store, connection("conn-2"))


async def test_statistics_and_a_renewal_at_once_both_succeed(store: Store) -> None:
    """Fenced by the whole record, one of them once failed for no reason."""
    fence = await register(store)
    outcomes: list[object] = []

    async def renew() -> None:
        outcomes.append(type(await store.registry.renew_connection(fence, TTL)))

    async def report(number: int) -> None:
        outcomes.extend(map(type, await store.registry.update_connection_stats([StatsReport(fence, Stats(number))])))

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(renew)
            nursery.start_soon(report, number)
    assert sorted(outcomes, key=str) == [Renewed] * 5 + [Updated] * 5


async def test_reports_are_answered_in_their_order(store: Store) -> None:
    fences = [await register(store, connection(f"conn-{n}")) for n in range(3)]
    await store.registry.release_connection(fences[1])
    reports = [StatsReport(fence, Stats(n + 1, 90 - n)) for n, fence in enumerate(fences)]
    assert await store.registry.update_connection_stats(reports) == (Updated(), Lapsed(), Updated())
    leases = await store.registry.list_active_by_agent("agent")
    assert [(lease.active_streams, lease.health_score) for lease in leases] == [(1, 90), (3, 88)]
    assert await store.registry.update_connection_stats([]) == ()


async def test_statistics_of_an_earlier_life_are_not_those_of_the_next(store: Store) -> None:
    """A late report once made a new connection look as busy as the old one, for good."""
    fence = await register(store)
    await store.registry.update_connection_stats([StatsReport(fence, Stats(40, 1))])
    await register(store, proposed=2)
    (lease,) = await store.registry.list_active_by_agent("agent")
    assert (lease.active_streams, lease.health_score) == (0, 100)


async def test_an_agent_is_found_in_any_case(store: Store) -> None:
    await register(store, connection(agent_id="Agent-DevBox"))
    for spelling in ("Agent-DevBox", "agent-devbox", "AGENT-DEVBOX"):
        assert await listed(store, spelling) == [("conn-1", 1)]
    assert await listed(store, "agent-devbox", exact=True) == []
    assert await listed(store, "Agent-DevBox", exact=True) == [("conn-1", 1)]


@pytest.mark.parametrize("agent_id", ["", "agent/connections", "a b", "agent\x00", "agent%", "ä", "a" * 1000])
async def test_what_no_agent_can_be_called_is_not_found(store: Store, agent_id: str) -> None:
    await register(store)
    assert await listed(store, agent_id) == await listed(store, agent_id, exact=True) == []


async def test_of_two_agents_that_differ_in_case_only_none_is_guessed(store: Store) -> None:
    await register(store, connection("conn-a", agent_id="Agent"))
    fence = await register(store, connection("conn-b", agent_id="agent"))
    for spelling in ("Agent", "agent", "AGENT"):
        with pytest.raises(AmbiguousAgentError) as caught:
            await store.registry.list_active_by_agent(spelling)
        assert set(caught.value.agent_ids) == {"Agent", "agent"}
    assert await listed(store, "agent", exact=True) == [("conn-b", 1)]
    await store.registry.release_connection(fence)
    assert await listed(store, "agent") == [("conn-a", 1)]


async def test_connection_ids_differ_in_case(store: Store) -> None:
    first = await register(store, connection("conn-x"), proposed=4)
    second = await register(store, connection("conn-X"))
    assert (first.epoch, second.epoch) == (4, 1)
    await store.registry.release_connection(second)
    assert await listed(store) == [("conn-x", 4)]


@pytest.mark.parametrize("callers", [2, 8])
async def test_of_many_that_register_one_connection_at_once_one_wins(store: Store, callers: int) -> None:
    outcomes: list[object] = []

    async def call(number: int) -> None:
        outcomes.append(await store.registry.register_connection(connection(node=f"router-{number}"), TTL))

    async with trio.open_nursery() as nursery:
        for number in range(callers):
            nursery.start_soon(call, number)
    (won,) = [outcome for outcome in outcomes if isinstance(outcome, Registered)]
    (lease,) = await store.registry.list_active_by_agent("agent")
    held = [outcome for outcome in outcomes if isinstance(outcome, Held)]
    assert len(held) == callers - 1
    assert {(outcome.server_node_id, outcome.epoch) for outcome in held} == {(lease.server_node_id, won.fence.epoch)}


async def test_of_many_that_propose_one_epoch_at_once_one_wins(store: Store) -> None:
    outcomes: list[object] = []

    async def call(epoch: int) -> None:
        outcomes.append(await store.registry.register_connection(connection(), TTL, ConnEpoch(epoch)))

    async with trio.open_nursery() as nursery:
        for epoch in (1, 2, 3) * 2:
            nursery.start_soon(call, epoch)
    won = [outcome.fence.epoch for outcome in outcomes if isinstance(outcome, Registered)]
    assert len(won) == len(set(won))
    assert max(won) == 3
    assert len(won) + sum(isinstance(outcome, Superseded) for outcome in outcomes) == 6
    assert await listed(store) == [("conn-1", 3)]


async def test_a_ttl_out_of_bounds_is_the_callers_fault(store: Store) -> None:
    fence = connection().fenced(1)
    for ttl in (0.0, -1.0, 3601.0, float("nan")):
        with pytest.raises(IdentifierError):
            await store.registry.register_connection(connection(), ttl)
        with pytest.raises(IdentifierError):
            await store.registry.renew_connection(fence, ttl)
