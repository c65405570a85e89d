"""Keeping connections listed: through outages, lost answers, other routers, and pauses of one's own."""

from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.pool.registry import (
    Full,
    Healed,
    Held,
    Kept,
    Lost,
    MemoryRegistry,
    Registered,
    RegistryLimits,
    RegistryUnavailableError,
    Result,
    Superseded,
    Unlisted,
)
from agentmesh.protocols.pool import MAX_EPOCH, ConnEpoch
from tests.pool.registry.faulty import Fault
from tests.pool.registry.routers import CONFIG, TRUST, Router, epochs_listed, router_on
from tests.pool.registry.test_contract import connection


async def test_a_connection_stays_listed_for_as_long_as_it_is_kept(
    autojump_clock: MockClock, router: Router, memory: MemoryRegistry
) -> None:
    kept = await router.keep()
    for _ in range(10):
        await trio.sleep(850)
        assert await epochs_listed(memory) == [1]
        assert router.keeper.accepts(kept.fence)
    await router.keeper.release(kept)
    assert await epochs_listed(memory) == []
    assert not router.keeper.accepts(kept.fence)
    assert router.events == []
    assert len(router.keeper) == 0


async def test_after_an_outage_a_live_connection_is_listed_within_a_heartbeat(
    autojump_clock: MockClock, router: Router, memory: MemoryRegistry
) -> None:
    """A heartbeat whose error was dropped once left connections that lived unlisted for good."""
    kept = await router.keep()
    before = kept.fence
    router.registry.fault = Fault.AWAY
    await trio.sleep(10 * CONFIG.ttl)
    assert await epochs_listed(memory) == []
    assert not router.keeper.accepts(before)
    router.registry.fault = Fault.NONE
    await trio.sleep(CONFIG.renew_interval)
    assert await epochs_listed(memory) == [2]
    assert router.events == [Healed(kept, before)]
    assert kept.epoch == 2
    assert router.keeper.accepts(kept.fence)
    assert not router.keeper.accepts(before)


async def test_an_outage_shorter_than_a_lease_changes_nothing(
    autojump_clock: MockClock, router: Router, memory: MemoryRegistry
) -> None:
    await router.keep()
    router.registry.fault = Fault.SILENT
    await trio.sleep(CONFIG.ttl - CONFIG.renew_interval - 2 * CONFIG.operation_timeout)
    router.registry.fault = Fault.NONE
    await trio.sleep(10 * CONFIG.ttl)
    assert await epochs_listed(memory) == [1]
    assert router.events == []


async def test_while_the_registry_is_away_one_connection_asks_for_all(
    autojump_clock: MockClock, router: Router, memory: MemoryRegistry
) -> None:
    for number in range(50):
        await router.keep(f"conn-{number}")
    router.registry.fault = Fault.AWAY
    await trio.sleep(CONFIG.renew_interval)
    router.registry.calls.clear()
    await trio.sleep(600)
    assert router.registry.calls.count("renew") <= 600 / (CONFIG.retry_interval / 2)
    router.registry.fault = Fault.NONE
    await trio.sleep(CONFIG.renew_interval)
    assert len(await epochs_listed(memory)) == 50
    assert router.keeper.results[Result.HEALED] == 50


async def test_a_router_that_cannot_renew_accepts_nothing_before_its_lease_ends(
    autojump_clock: MockClock, router: Router
) -> None:
    kept = await router.keep()
    router.registry.fault = Fault.SILENT
    await trio.sleep(TRUST - 1)
    assert router.keeper.accepts(kept.fence)
    await trio.sleep(1)
    assert not router.keeper.accepts(kept.fence)


async def test_a_router_that_was_paused_accepts_nothing_until_it_has_asked(
    autojump_clock: MockClock, router: Router
) -> None:
    kept = await router.keep()
    router.registry.late = trio.Event()  # the answers of what it asks now are not there yet
    with trio.CancelScope(shield=True):
        await trio.sleep(TRUST)
    assert not router.keeper.accepts(kept.fence)
    router.registry.late.set()
    await trio.sleep(CONFIG.renew_interval)
    assert router.keeper.accepts(kept.fence)


async def test_a_renewal_counts_from_when_it_was_asked_for(autojump_clock: MockClock, router: Router) -> None:
    """The answer took its time; the lease began before."""
    kept = await router.keep()
    asked_by = trio.current_time() + CONFIG.renew_interval
    await trio.sleep(0.7 * CONFIG.renew_interval)
    router.registry.late = trio.Event()
    await trio.sleep_until(asked_by + 3)
    router.registry.late.set()
    await wait_all_tasks_blocked()
    assert kept.trusted_until <= asked_by + TRUST


async def test_a_connection_that_lives_on_elsewhere_is_given_up(
    autojump_clock: MockClock, router: Router, memory: MemoryRegistry
) -> None:
    kept = await router.keep()
    async with router_on(memory) as other:
        await other.keeper.register(connection(node="router-2"), ConnEpoch(9))
        await trio.sleep(CONFIG.renew_interval)
        assert router.events == [Lost(kept, ConnEpoch(9))]
        assert not router.keeper.accepts(kept.fence)
        assert len(router.keeper) == 0
        await router.keeper.release(kept)
        await trio.sleep(600)
        assert await epochs_listed(memory) == [9]
        assert other.events == []
    assert "release" not in router.registry.calls


async def test_a_connection_that_was_registered_elsewhere_during_an_outage_is_given_up(
    autojump_clock: MockClock, router: Router, memory: MemoryRegistry
) -> None:
    kept = await router.keep()
    router.registry.fault = Fault.AWAY
    await trio.sleep(CONFIG.ttl + 1)
    outcome = await memory.register_connection(connection(node="router-2"), 3600)
    assert isinstance(outcome, Registered)
    router.registry.fault = Fault.NONE
    await trio.sleep(CONFIG.renew_interval)
    assert router.events == [Lost(kept, outcome.fence.epoch)]
    assert await epochs_listed(memory) == [outcome.fence.epoch]


async def test_a_connection_whose_registering_was_not_answered_is_got_back(
    autojump_clock: MockClock, router: Router, memory: MemoryRegistry
) -> None:
    """It was listed, under an epoch that nobody knew: it is not left to run out first."""
    kept = await router.keep()
    router.registry.fault = Fault.AWAY
    await trio.sleep(CONFIG.ttl + 1)
    router.registry.fault, router.registry.hit = Fault.DEAF, "register"
    await trio.sleep(CONFIG.retry_interval)
    assert await epochs_listed(memory) == [2]
    assert kept.epoch == 1
    router.registry.fault = Fault.NONE
    await trio.sleep(CONFIG.renew_interval)
    assert kept.epoch == 3
    assert await epochs_listed(memory) == [3]
    assert [type(event) for event in router.events] == [Healed]


async def test_a_connection_that_ends_while_it_is_registered_again_is_not_listed(
    autojump_clock: MockClock, router: Router, memory: MemoryRegistry
) -> None:
    """A late answer once brought back what had been closed."""
    kept = await router.keep()
    router.registry.fault = Fault.AWAY
    await trio.sleep(CONFIG.ttl + 1)
    router.registry.fault, router.registry.hit, router.registry.late = Fault.NONE, "register", trio.Event()
    await trio.sleep(CONFIG.retry_interval)
    assert await epochs_listed(memory) == [2]
    await router.keeper.release(kept)
    router.registry.late.set()
    await trio.sleep(CONFIG.renew_interval)
    assert await epochs_listed(memory) == []
    assert router.events == []


async def test_registering_that_is_cancelled_leaves_nothing_listed(
    autojump_clock: MockClock, router: Router, memory: MemoryRegistry
) -> None:
    router.registry.late = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer_after, router, 2)
        with trio.move_on_after(1) as scope:
            await router.keeper.register(connection())
    assert scope.cancelled_caught
    assert await epochs_listed(memory) == []
    assert len(router.keeper) == 0


async def answer_after(router: Router, seconds: float) -> None:
    await trio.sleep(seconds)
    router.registry.late.set()


async def test_a_registration_that_is_refused_is_not_kept(
    autojump_clock: MockClock, router: Router, memory: MemoryRegistry
) -> None:
    kept = await router.keep()
    assert isinstance(await router.keeper.register(connection()), Held)
    assert await router.keeper.register(connection(), ConnEpoch(0)) == Superseded(ConnEpoch(1))
    memory.limits = RegistryLimits(max_connections_per_agent=1)
    assert isinstance(await router.keeper.register(connection("conn-2")), Full)
    assert list(router.keeper) == [kept]
    router.registry.fault = Fault.AWAY
    with pytest.raises(RegistryUnavailableError):
        await router.keeper.register(connection("conn-3"))
    router.registry.fault = Fault.SILENT
    with pytest.raises(RegistryUnavailableError, match="within"):
        await router.keeper.register(connection("conn-3"))
    assert list(router.keeper) == [kept]


async def test_a_connection_that_comes_again_takes_the_place_of_its_earlier_life(
    autojump_clock: MockClock, router: Router, memory: MemoryRegistry
) -> None:
    """What ends late is the old life, and not what has its place by then."""
    old = await router.keep()
    new = await router.keeper.register(connection(), ConnEpoch(5))
    assert isinstance(new, Kept)
    await router.keeper.release(old)
    assert list(router.keeper) == [new]
    await trio.sleep(600)
    assert await epochs_listed(memory) == [5]
    assert router.keeper.accepts(new.fence)
    assert not router.keeper.accepts(old.fence)
    assert router.events == []


async def test_where_others_took_its_place_a_connection_waits_for_room(
    autojump_clock: MockClock, router: Router, memory: MemoryRegistry
) -> None:
    kept = await router.keep()
    router.registry.fault = Fault.AWAY
    await trio.sleep(CONFIG.ttl + 1)
    memory.limits = RegistryLimits(max_connections_per_agent=1)
    await memory.register_connection(connection("conn-2"), 100)
    router.registry.fault = Fault.NONE
    await trio.sleep(CONFIG.renew_interval)
    assert router.events[:1] == [Unlisted(kept, "max_connections_per_agent")]
    assert not router.keeper.accepts(kept.fence)
    await trio.sleep(100 + CONFIG.renew_interval)
    assert await epochs_listed(memory) == [2]
    assert router.keeper.accepts(kept.fence)


async def test_no_more_renewals_are_on_their_way_than_may_be(autojump_clock: MockClock, memory: MemoryRegistry) -> None:
    async with router_on(memory, attrs.evolve(CONFIG, max_at_once=3)) as router:
        for number in range(20):
            kept = await router.keep(f"conn-{number}")
            kept.renew_at = 10.0  # all at once, as after a pause
        router.registry.calls.clear()
        router.registry.late = trio.Event()
        await trio.sleep(12)
        assert router.registry.calls.count("renew") == 3
        router.registry.late.set()
        await trio.sleep(2 * CONFIG.renew_interval)
        assert router.keeper.results[Result.RENEWED] >= 20


async def test_a_refusal_of_the_store_keeps_nobody_else_from_being_renewed(
    autojump_clock: MockClock, router: Router, memory: MemoryRegistry
) -> None:
    """It is one connection that has used up its epochs."""
    last = await router.keeper.register(connection(), ConnEpoch(MAX_EPOCH))
    assert isinstance(last, Kept)
    other = await router.keep("conn-2")
    await memory.release_connection(last.fence)
    await trio.sleep(10 * CONFIG.ttl)
    assert router.keeper.accepts(other.fence)
    assert not router.keeper.accepts(last.fence)
    assert router.keeper.get(last.fence) is last
    assert router.keeper.results[Result.UNAVAILABLE] == 0


async def test_a_connection_whose_row_is_stuck_keeps_nobody_else_from_being_renewed(
    autojump_clock: MockClock, router: Router
) -> None:
    """It is not the registry that is away, though it looks so to the one."""
    kept = [await router.keep(f"conn-{number}") for number in range(10)]
    router.registry.stuck = "conn-0"
    for _ in range(20):
        await trio.sleep(CONFIG.renew_interval)
        assert all(router.keeper.accepts(one.fence) for one in kept[1:])
    assert not router.keeper.accepts(kept[0].fence)


async def test_an_answer_that_a_later_one_has_overtaken_is_superseded(
    autojump_clock: MockClock, router: Router, memory: MemoryRegistry
) -> None:
    router.registry.late = trio.Event()
    outcomes: list[object] = []

    async def register(epoch: int) -> None:
        outcomes.append(await router.keeper.register(connection(), ConnEpoch(epoch)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(register, 1)
        await wait_all_tasks_blocked()
        first, router.registry.late = router.registry.late, trio.Event()
        router.registry.late.set()
        await register(2)
        first.set()
    (kept,) = router.keeper
    assert outcomes == [kept, Superseded(ConnEpoch(2))]
    assert kept.epoch == 2


async def test_a_release_that_is_not_answered_is_not_waited_for(
    autojump_clock: MockClock, router: Router, memory: MemoryRegistry
) -> None:
    kept = await router.keep()
    for fault in (Fault.SILENT, Fault.AWAY):
        router.registry.fault = fault
        started = trio.current_time()
        await router.keeper.release(kept)
        assert trio.current_time() - started <= CONFIG.release_timeout
    await trio.sleep(CONFIG.ttl)
    assert await epochs_listed(memory) == []


@pytest.mark.parametrize(
    "wrong", [{"renew_interval": 60.0}, {"trust": 1.0}, {"trust": 0.0}, {"renew_interval": 0.0}, {"max_at_once": 0}]
)
def test_a_keeper_renews_before_it_stops_trusting(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="lease|max_at_once"):
        attrs.evolve(CONFIG, **wrong)


async def test_epochs_of_long_ago_are_forgotten(autojump_clock: MockClock, memory: MemoryRegistry) -> None:
    config = attrs.evolve(CONFIG, fence_retention=1000.0, forget_interval=100.0)
    async with router_on(memory, config) as router:
        await router.keeper.release(await router.keep())
        await trio.sleep(500)
        assert memory.remembered("agent") == 1
        router.registry.fault = Fault.AWAY
        await trio.sleep(1000)
        assert memory.remembered("agent") == 1
        router.registry.fault = Fault.NONE
        await trio.sleep(100)
        assert memory.remembered("agent") == 0
