"""Routers that keep connections on one registry, each cut off from it, slowed and paused as it comes.

What a router accepts streams for has a lease that has not run out, whatever became of its calls; and when all is well
for a heartbeat, every connection that is kept is listed.
"""

import threading
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

import attrs
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.pool.registry import Keeper, KeeperConfig, KeeperEvent, Lost, MemoryRegistry, RegistryUnavailableError
from agentmesh.protocols.pool import ConnEpoch
from tests.pool.registry.faulty import Fault, FaultyRegistry
from tests.pool.registry.test_contract import connection

T = TypeVar("T")

CONFIG = KeeperConfig()
ROUTERS = 3
HEARTBEAT = CONFIG.renew_interval + CONFIG.operation_timeout + CONFIG.retry_interval

routers = st.integers(0, ROUTERS - 1)
names = st.sampled_from(["conn-1", "conn-2"])


@attrs.define
class Router:
    registry: FaultyRegistry
    keeper: Keeper
    events: list[KeeperEvent]


class Keepers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = MockClock()
        self.ready = threading.Event()
        self.thread = threading.Thread(target=lambda: trio.run(self.main, clock=self.clock))
        self.thread.start()
        self.ready.wait()

    async def main(self) -> None:
        self.token, self.stop = trio.lowlevel.current_trio_token(), trio.Event()
        self.memory = MemoryRegistry(clock=trio.current_time)
        self.routers: list[Router] = []
        async with trio.open_nursery() as nursery:
            for number in range(ROUTERS):
                registry, events = FaultyRegistry(self.memory), list[KeeperEvent]()
                keeper = Keeper(registry, CONFIG, Random(number), events.append)
                nursery.start_soon(keeper.run)
                self.routers.append(Router(registry, keeper, events))
            self.nursery = nursery
            await wait_all_tasks_blocked()
            self.ready.set()
            await self.stop.wait()
            self.clock.autojump_threshold = 0  # calls that are not answered take their time to end
            nursery.cancel_scope.cancel()

    def teardown(self) -> None:
        self.token.run_sync_soon(self.stop.set)
        self.thread.join()

    def call(self, step: Callable[[], Awaitable[T]]) -> T:
        async def run() -> T:
            result = await step()
            await wait_all_tasks_blocked()
            return result

        return trio.from_thread.run(run, trio_token=self.token)

    @initialize(router=routers)
    def register_first(self, router: int) -> None:
        self.register(router, "conn-1", None)

    @rule(router=routers, name=names, proposed=st.none() | st.integers(1, 6))
    def register(self, router: int, name: str, proposed: int | None) -> None:
        async def attempt() -> None:
            epoch = None if proposed is None else ConnEpoch(proposed)
            try:
                await self.routers[router].keeper.register(connection(name, node=f"router-{router}"), epoch)
            except RegistryUnavailableError:
                return

        async def start() -> None:
            self.nursery.start_soon(attempt)

        self.call(start)

    @rule(router=routers, name=names)
    def release(self, router: int, name: str) -> None:
        async def start() -> None:
            for kept in self.routers[router].keeper:
                if kept.new.connection_id == name:
                    self.nursery.start_soon(self.routers[router].keeper.release, kept)

        self.call(start)

    @rule(router=routers, fault=st.sampled_from(Fault))
    def change_fault(self, router: int, fault: Fault) -> None:
        self.routers[router].registry.fault = fault

    @rule(seconds=st.sampled_from([1.0, 7.0, 28.0, 61.0, 95.0]))
    def pause(self, seconds: float) -> None:
        """Time passes in which no router gets to do anything."""

        async def jump() -> None:
            self.clock.jump(seconds)
            self.check()

        self.call(jump)

    @rule(seconds=st.integers(1, 60))
    def time_passes(self, seconds: int) -> None:
        self.call(lambda: self.run_for(seconds))

    @rule()
    def all_is_well_for_a_heartbeat(self) -> None:
        for router in self.routers:
            router.registry.fault = Fault.NONE
        self.call(self.check_all)

    async def check_all(self) -> None:
        """A lease whose answer was lost may be listed besides, until it runs out."""
        await self.run_for(round(2 * HEARTBEAT))
        listed = {lease.fence for lease in await self.memory.list_active_by_agent("agent")}
        kept = [kept.fence for router in self.routers for kept in router.keeper]
        assert set(kept) <= listed
        assert len({fence.connection_id for fence in kept}) == len(kept), "two routers keep one connection"
        assert all(router.keeper.accepts(one.fence) for router in self.routers for one in router.keeper)

    async def run_for(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.jump(1)
            await wait_all_tasks_blocked()
            self.check()

    @invariant()
    def what_is_accepted_is_leased(self) -> None:
        async def look() -> None:
            self.check()

        self.call(look)

    def check(self) -> None:
        now = trio.current_time()
        for router in self.routers:
            for kept in router.keeper:
                if router.keeper.accepts(kept.fence):
                    assert now < router.registry.granted[kept.fence]
            lost = [event.kept for event in router.events if isinstance(event, Lost)]
            assert not any(kept.accepts(kept.epoch, now) or kept in router.keeper for kept in lost)


TestKeepers = Keepers.TestCase
TestKeepers.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
