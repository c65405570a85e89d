"""Each bound of the registry, filled, on every store."""

import attrs
import pytest

from agentmesh.pool.registry import (
    Full,
    IdentifierError,
    Lapsed,
    Registered,
    RegistryLimits,
    Stats,
    StatsReport,
    Superseded,
)
from agentmesh.protocols.pool import ConnEpoch
from tests.pool.registry.conftest import Opener
from tests.pool.registry.test_contract import TTL, connection, listed, register


async def test_beyond_the_connections_of_an_agent_whoever_comes_last_is_refused(open_store: Opener) -> None:
    async with open_store(RegistryLimits(max_connections_per_agent=2)) as store:
        first = await register(store, connection("conn-1"))
        await register(store, connection("conn-2"))
        full = await store.registry.register_connection(connection("conn-3"), TTL)
        assert full == Full("max_connections_per_agent", 2)
        await register(store, connection("conn-1"), proposed=first.epoch + 1)  # one that is in is let in again
        await register(store, connection("conn-1", agent_id="other"))
        assert [name for name, _ in await listed(store)] == ["conn-1", "conn-2"]
        await store.registry.release_connection(connection("conn-2").fenced(1))
        await register(store, connection("conn-3"))
        await store.advance(TTL + 1)
        await register(store, connection("conn-4"))


async def test_a_lower_limit_puts_nobody_out(open_store: Opener) -> None:
    async with open_store(RegistryLimits(max_connections_per_agent=2)) as store:
        for number in range(2):
            await register(store, connection(f"conn-{number}"))
        store.registry.limits = RegistryLimits(max_connections_per_agent=1)
        assert len(await listed(store)) == 2
        full = await store.registry.register_connection(connection("conn-3"), TTL)
        assert full == Full("max_connections_per_agent", 1)


async def test_fences_are_forgotten_beyond_their_number_and_epochs_never_go_back(open_store: Opener) -> None:
    """Kept one by one for ever, they once grew with every connection that ever was."""
    async with open_store(RegistryLimits(max_fences_per_agent=3)) as store:
        highest = 0
        for number in range(8):
            fence = await register(store, connection(f"conn-{number}"), proposed=10 * (number + 1))
            highest = fence.epoch
            await store.registry.release_connection(fence)
            await store.advance(1)
        assert await store.remembered("agent") <= 4
        assert await store.registry.renew_connection(connection("conn-0").fenced(10), TTL) == Lapsed()
        again = await store.registry.register_connection(connection("conn-0"), TTL, ConnEpoch(10))
        assert isinstance(again, Registered)
        assert again.fence.epoch > 10, "an epoch came again"
        fresh = await register(store, connection("conn-new"))
        assert again.fence.epoch <= fresh.epoch <= highest


async def test_fences_are_forgotten_after_their_time_and_epochs_never_go_back(open_store: Opener) -> None:
    async with open_store(RegistryLimits()) as store:
        ended = await register(store, connection("conn-1"), proposed=41)
        await store.registry.release_connection(ended)
        await store.advance(100)
        lives = await register(store, connection("conn-2"), proposed=70)
        assert await store.registry.forget_fences(3600) == 0
        assert await store.registry.register_connection(connection("conn-1"), TTL, ConnEpoch(5)) == Superseded(
            ConnEpoch(41)
        )
        assert await store.registry.forget_fences(50) == 1
        assert await store.remembered("agent") == 1
        assert await listed(store) == [("conn-2", lives.epoch)]
        assert (await register(store, connection("conn-1"))).epoch == 42
        assert (await register(store, connection("conn-3"))).epoch == 42


async def test_a_batch_of_reports_is_bounded(open_store: Opener) -> None:
    async with open_store(RegistryLimits(max_batch=2)) as store:
        fence = await register(store)
        assert len(await store.registry.update_connection_stats([StatsReport(fence, Stats())] * 2)) == 2
        with pytest.raises(IdentifierError):
            await store.registry.update_connection_stats([StatsReport(fence, Stats())] * 3)


async def test_what_lives_is_not_forgotten(open_store: Opener) -> None:
    async with open_store(RegistryLimits()) as store:
        await register(store)
        for retention in (-1.0, float("nan")):
            with pytest.raises(IdentifierError):
                await store.registry.forget_fences(retention)
        assert await store.registry.forget_fences(0) == 0
        assert await listed(store) == [("conn-1", 1)]


async def test_an_answer_is_bounded(open_store: Opener) -> None:
    async with open_store(RegistryLimits(max_listed=3)) as store:
        for number in range(5):
            await register(store, connection(f"conn-{number}"))
        assert [name for name, _ in await listed(store)] == ["conn-0", "conn-1", "conn-2"]


@pytest.mark.parametrize("name", [field.name for field in attrs.fields(RegistryLimits)])
def test_no_limit_is_nothing(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        RegistryLimits(**{name: 0})
