"""How busy connections are: told together, told late, and told of a life that is over."""

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.pool.registry import (
    Lost,
    MemoryRegistry,
    Registered,
    RegistryLimits,
    Stats,
)
from agentmesh.protocols.pool import ConnEpoch
from tests.pool.registry.routers import CONFIG, TRUST, Router, epochs_listed, router_on
from tests.pool.registry.test_contract import connection


async def test_statistics_are_told_together_when_they_change_and_now_and_then(
    autojump_clock: MockClock, router: Router, memory: MemoryRegistry
) -> None:
    kept = [await router.keep(f"conn-{number}") for number in range(40)]
    await trio.sleep(CONFIG.stats_interval + 1)
    router.registry.calls.clear()
    kept[7].stats = Stats(3, 40)
    await trio.sleep(CONFIG.stats_interval)
    leases = {lease.connection_id: lease for lease in await memory.list_active_by_agent("agent")}
    assert (leases["conn-7"].active_streams, leases["conn-7"].health_score) == (3, 40)
    assert router.registry.calls.count("report") == 1
    await trio.sleep(10 * CONFIG.renew_interval)
    assert router.registry.calls.count("report") <= 21
    ages = [lease.stats_age for lease in await memory.list_active_by_agent("agent")]
    assert max(ages) <= CONFIG.renew_interval + CONFIG.stats_interval


async def test_statistics_beyond_a_batch_are_told_in_several(autojump_clock: MockClock, memory: MemoryRegistry) -> None:
    memory.limits = RegistryLimits(max_batch=16)
    async with router_on(memory) as router:
        for number in range(40):
            await router.keep(f"conn-{number}")
        await router.keeper.report()
        assert router.registry.calls.count("report") == 3
        assert all(kept.told == Stats() for kept in router.keeper)


async def test_a_lapse_that_statistics_bring_to_light_is_mended_at_once(
    autojump_clock: MockClock, router: Router, memory: MemoryRegistry
) -> None:
    kept = await router.keep()
    await memory.release_connection(kept.fence)
    kept.stats = Stats(1)
    await trio.sleep(CONFIG.stats_interval + 1)
    assert await epochs_listed(memory) == [2]


async def test_a_loss_that_statistics_bring_to_light_is_told(
    autojump_clock: MockClock, router: Router, memory: MemoryRegistry
) -> None:
    kept = await router.keep()
    await memory.register_connection(connection(node="router-2"), 1000, ConnEpoch(4))
    kept.stats = Stats(1)
    await trio.sleep(CONFIG.stats_interval + 1)
    assert router.events == [Lost(kept, ConnEpoch(4))]


async def test_statistics_that_cross_a_new_registration_do_not_end_it(
    autojump_clock: MockClock, router: Router, memory: MemoryRegistry
) -> None:
    """They were about the life before, and are answered so."""
    kept = await router.keep()
    await memory.release_connection(kept.fence)
    router.registry.late = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(router.keeper.report)
        await wait_all_tasks_blocked()
        outcome = await memory.register_connection(kept.new, CONFIG.ttl)
        assert isinstance(outcome, Registered)
        kept.hold(outcome.fence, trio.current_time() + TRUST, trio.current_time() + 10)
        router.registry.late.set()
    assert list(router.keeper) == [kept]
    assert router.events == []
