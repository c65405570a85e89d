"""What becomes of a change in etcd when somebody else is faster, just before it is written."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial

import attrs
import httpx
import pytest

from agentmesh.pool.registry import (
    Fence,
    Held,
    Lapsed,
    Registered,
    RegistryLimits,
    RegistryUnavailableError,
    Renewed,
    Stats,
    StatsReport,
    Superseded,
)
from agentmesh.pool.registry.dsn import EtcdCluster, parse_registry_dsn
from agentmesh.pool.registry.etcd import EtcdRegistry
from agentmesh.pool.registry.etcd_client import EtcdClient, Json, LeaseGoneError, get_below
from agentmesh.protocols.pool import ConnEpoch
from tests.pool.registry.test_contract import TTL, connection
from tests.servers.etcd import Etcd


class InterruptedClient(EtcdClient):
    """Attributes:
    interrupt: is done before each of the next `times` writings.
    granted: all leases that were.
    """

    interrupt: Callable[[], Awaitable[object]]

    def __init__(self, http: httpx.AsyncClient, endpoints: Sequence[str]) -> None:
        super().__init__(http, endpoints)
        self.times = 0
        self.granted: list[int] = []

    async def grant(self, ttl: int) -> tuple[int, int]:
        lease, seconds = await super().grant(ttl)
        self.granted.append(lease)
        return lease, seconds

    async def write_if(self, conditions: Sequence[Json], *changes: Json) -> bool:
        if self.times:
            self.times -= 1
            await self.interrupt()
        return await super().write_if(conditions, *changes)


@attrs.define
class Race:
    """`registry` is to change something; `other` is faster."""

    client: InterruptedClient
    registry: EtcdRegistry
    other: EtcdRegistry
    prefix: str

    async def register(self, epoch: int | None = None) -> Fence:
        """By the other."""
        outcome = await self.other.register_connection(
            connection(node="router-2"), TTL, None if epoch is None else ConnEpoch(epoch)
        )
        assert isinstance(outcome, Registered), outcome
        return outcome.fence

    async def end_lease(self) -> None:
        (found,) = await self.client.read(get_below(f"{self.prefix}/agents/agent/connections/"))
        for kv in found.kvs:
            await self.client.revoke(kv.lease)

    def before_writing(self, interrupt: Callable[[], Awaitable[object]], times: int = 1) -> None:
        self.client.interrupt, self.client.times = interrupt, times


@pytest.fixture
async def race(etcd: Etcd) -> AsyncGenerator[Race]:
    cluster = parse_registry_dsn(etcd.new_dsn())
    assert isinstance(cluster, EtcdCluster)
    limits = RegistryLimits(max_races=3)
    async with httpx.AsyncClient(trust_env=False) as http:
        client, other = InterruptedClient(http, cluster.endpoints), EtcdClient(http, cluster.endpoints)
        registry = EtcdRegistry(client, cluster.prefix, limits)
        yield Race(client, registry, EtcdRegistry(other, cluster.prefix, limits), cluster.prefix)


async def test_a_connection_that_another_registers_first_is_held(race: Race) -> None:
    race.before_writing(race.register)
    outcome = await race.registry.register_connection(connection(), TTL)
    assert isinstance(outcome, Held)
    assert outcome.server_node_id == "router-2"


async def test_a_proposal_that_another_exceeds_first_is_superseded(race: Race) -> None:
    race.before_writing(lambda: race.register(9))
    outcome = await race.registry.register_connection(connection(), TTL, ConnEpoch(5))
    assert outcome == Superseded(ConnEpoch(9))


def changes_of(registry: EtcdRegistry) -> list[Callable[[Fence], Awaitable[object]]]:
    """All that a fence allows, each giving an outcome."""

    async def report(fence: Fence) -> object:
        return (await registry.update_connection_stats([StatsReport(fence, Stats())]))[0]

    return [
        lambda fence: registry.renew_connection(fence, TTL),
        lambda fence: registry.renew_connection(fence, 2 * TTL),
        registry.release_connection,
        report,
    ]


async def test_a_change_that_another_life_precedes_is_superseded(race: Race) -> None:
    fence = await race.register()
    for change in changes_of(race.registry):
        latest = ConnEpoch(fence.epoch + 1)
        race.before_writing(partial(race.register, latest))
        assert await change(fence) == Superseded(latest)
        fence = connection().fenced(latest)
    (lease,) = await race.registry.list_active_by_agent("agent")
    assert lease.connection_epoch == fence.epoch


async def test_a_change_that_the_end_of_the_lease_precedes_is_lapsed(race: Race) -> None:
    for change in changes_of(race.registry):
        fence = await race.register()
        race.before_writing(race.end_lease)
        assert await change(fence) == Lapsed()


async def test_a_renewal_for_another_time_waits_for_statistics_that_come_first(race: Race) -> None:
    fence = await race.register()

    async def report() -> None:
        await race.other.update_connection_stats([StatsReport(fence, Stats(4, 44))])

    await report()
    race.before_writing(report)
    assert isinstance(await race.registry.renew_connection(fence, 2 * TTL), Renewed)
    (lease,) = await race.registry.list_active_by_agent("agent")
    assert lease.active_streams == 4


async def test_who_always_comes_too_late_is_told_so_in_the_end(race: Race) -> None:
    names = iter(range(10))

    async def register_another() -> None:
        await race.other.register_connection(connection(f"other-{next(names)}"), TTL)

    race.before_writing(register_another, times=10)
    with pytest.raises(RegistryUnavailableError, match="too many"):
        await race.registry.register_connection(connection(), TTL)
    assert race.client.times == 10 - race.registry.limits.max_races


async def test_leases_that_came_to_nothing_are_not_left_behind(race: Race) -> None:
    race.before_writing(race.register)
    await race.registry.register_connection(connection(), TTL)
    (granted,) = race.client.granted
    with pytest.raises(LeaseGoneError):
        await race.client.keep_alive(granted)
