"""The simulated network: virtual time, and the same run for the same seed to the byte."""

import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import trio

from agentmesh.abc import Transport
from agentmesh.node import Node
from agentmesh.router import Router, RouterConfig, open_router_as
from agentmesh.runtime.config import HostConfig
from agentmesh.testing import Conditions, MemoryNetwork, SteadyTlsContext
from agentmesh.types import Address
from tests.membership.plane import ROUTER_TOKEN, wall_clock
from tests.soak.scenario import Fault, Injection, Scope
from tests.soak.world import ENROLLMENT, World, member_name, router_name

ANYWHERE = (Address.parse("/memory/0"),)
FINE = Conditions(latency=0.02, jitter=0.01, bandwidth=12.5e6)
STRANGER = "stranger"

Way = tuple[str, str]  # a member and a router, by the names of their hosts


def slow(badness: float) -> Conditions:
    """A path that still is one: 0.2 s and 200 kB/s, or at worst 1.5 s and 20 kB/s."""
    return Conditions(latency=0.2 + 1.3 * badness, jitter=0.5 * badness, bandwidth=2e5 * 0.1**badness)


class SimulatedWorld(World):
    """Hosts of a `MemoryNetwork`, one a member.

    Attributes:
        network: the network, and its trace.
    """

    security = SteadyTlsContext
    host = HostConfig()
    recovery = 420.0  # a router that was in trouble may be shunned for 300
    patience = 240.0
    interval = 10.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed, wall_clock)
        self.network = MemoryNetwork(seed=seed, conditions=FINE)
        self._members: list[str] = []

    @asynccontextmanager
    async def open_router(self, number: int) -> AsyncGenerator[Router]:
        name = router_name(number)
        config = RouterConfig(enrollment=ENROLLMENT, listen=ANYWHERE, host=self.host)
        membership = await self.enroll(name, ROUTER_TOKEN)
        transports = [self.network.transport(name)]
        async with open_router_as(membership, config, transports=transports, security=self.security) as router:
            yield router

    def node_transports(self, number: int) -> Sequence[Transport]:
        name = member_name(number)
        if name not in self._members:
            self._members.append(name)
        return [self.network.transport(name)]

    def stranger(self, chance: random.Random, router: Router) -> tuple[Transport, Address]:
        return self.network.transport(STRANGER), router.addresses[0]

    def vanish(self, number: int) -> None:
        self._forget(member_name(number))

    async def inject(self, injection: Injection, routers: Sequence[Router], node: Node | None) -> int:
        member, router = member_name(injection.member), router_name(injection.router)
        if injection.fault is Fault.FREEZE and injection.scope is not Scope.PATH:
            await self._freeze(member if injection.scope is Scope.MEMBER else router, injection.lasts)
            return 1
        ways = self._ways(injection, routers, node)
        match injection.fault:
            case Fault.FREEZE:
                await self._block(ways, injection.lasts)
            case Fault.SLOW:
                await self._slow_down(ways, injection)
            case _:
                for way in ways:
                    self._harm(injection, *way)
        return len(ways)

    def _ways(self, injection: Injection, routers: Sequence[Router], node: Node | None) -> list[Way]:
        if injection.scope is Scope.ROUTER:
            return [(member, router_name(injection.router)) for member in self._members]
        held = [
            router_name(number)
            for number, router in enumerate(routers)
            if node is not None and node.host.session(router.peer) is not None
        ]
        if injection.scope is Scope.PATH and held:
            held = [held[injection.router % len(held)]]
        return [(member_name(injection.member), router) for router in held]

    def _harm(self, injection: Injection, member: str, router: str) -> None:
        source, target = (router, member) if injection.inbound else (member, router)
        match injection.fault:
            case Fault.RESET:
                self.network.reset(member, router)
            case Fault.FORGET:
                self.network.forget(member, router)
            case Fault.HALF_CLOSE:
                self.network.half_close(source, target)
            case _:
                self.network.garble(source, target)

    async def _freeze(self, name: str, seconds: float) -> None:
        self.network.freeze(name)
        await trio.sleep(seconds)
        self.network.thaw(name)

    async def _block(self, ways: Sequence[Way], seconds: float) -> None:
        for way in ways:
            self.network.block(*way)
        await trio.sleep(seconds)
        for way in ways:
            self.network.heal(*way)

    async def _slow_down(self, ways: Sequence[Way], injection: Injection) -> None:
        for way in ways:
            self.network.set_conditions(*way, slow(injection.badness))
        await trio.sleep(injection.lasts)
        for way in ways:
            self.network.set_conditions(*way, FINE)

    def _forget(self, name: str) -> None:
        for number in range(len(self.plane.routers)):
            self.network.forget(name, router_name(number))
