"""Routers, processes and the registry fail at random, the same way for one seed, while a client opens and uses streams.

python -m tests.pool.chaos [hours] [seed]           as long as you like; 24 hours take some minutes
"""

import logging
import random
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.abc import Stream
from agentmesh.errors import NotConnectedError
from agentmesh.node import Node
from agentmesh.node.tunnels import TunnelError
from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.registry import MemoryRegistry
from agentmesh.pool.router.attached import attached_to
from agentmesh.pool.router.connection import Connection
from agentmesh.pool.router.invariants import violations
from agentmesh.pool.router.selection import healthy, is_online
from agentmesh.pool.router.views import Moment, agent_view
from agentmesh.protocols.pool import DrainReason
from agentmesh.router import Router
from agentmesh.testing.clock import run
from agentmesh.testing.links import Conditions
from tests.pool.machines import names_by_seed
from tests.pool.registry.faulty import Fault, FaultyRegistry
from tests.pool.scripts import FarEnd
from tests.pool.worlds import HELD
from tests.router.agents.agency import AGENT, Agency, open_agency, wait_joined

ROUTERS, PROCESSES = 3, 3
CONNECTIONS = ConnectionsConfig(min=2, max=4, high_watermark=8)
MAX_STREAMS = 40


@attrs.define(eq=False)
class Used:
    """A stream, and how many faults there had been when it was opened."""

    client: Stream
    target: FarEnd
    faults: int


@attrs.define
class Chaos:
    """Attributes:
    blocked: routers that nobody reaches for now, until when.
    counts: what was done, and what came of it.
    """

    agency: Agency
    registry: FaultyRegistry
    client: Node
    chance: random.Random
    nursery: trio.Nursery
    routers: dict[str, Router]
    blocked: set[str] = attrs.Factory(set[str])
    down: set[str] = attrs.Factory(set[str])
    streams: list[Used] = attrs.Factory(list[Used])
    counts: Counter[str] = attrs.Factory(Counter[str])
    faults: int = 0

    @property
    def alive(self) -> list[Router]:
        return [router for name, router in self.routers.items() if name not in self.blocked | self.down]

    def is_online(self) -> bool:
        """Whether a router that can be reached has a healthy connection, and the client has a router."""
        tables = [router.agents.service.table for router in self.alive]
        peers = {router.peer for router in self.alive}
        there = any(is_online(table.get(AGENT), table.limits, trio.current_time()) for table in tables)
        return there and bool(peers & set(self.client.routers))

    async def step(self) -> None:
        steps: list[Callable[[], Awaitable[None]]] = [self.open, self.use, self.close, self.fail]
        await self.chance.choices(steps, [9, 9, 6, 1])[0]()
        await trio.sleep(self.chance.expovariate(0.5))

    # ── the client ──

    async def open(self) -> None:
        if len(self.streams) >= MAX_STREAMS:
            return
        held, before = len(self.agency.targets.held), self.is_online()
        try:
            stream = await self.client.open_tunnel(AGENT, f"tcp://{HELD}:22")
        except (TunnelError, NotConnectedError):
            self.counts["refused"] += 1
            self.counts["refused though online"] += before and self.is_online()
            return
        assert len(self.agency.targets.held) == held + 1
        self.streams.append(Used(stream, self.agency.targets.held.pop(), self.faults))
        self.agency.targets.held.clear()
        self.counts["opened"] += 1

    async def use(self) -> None:
        if not self.streams:
            return
        stream = self.chance.choice(self.streams)
        data = self.chance.randbytes(self.chance.choice([1, 1000, 300_000]))
        forth = self.chance.random() < 0.5
        source, sink = (stream.client, stream.target) if forth else (stream.target, stream.client)
        heard = bytearray()
        try:
            with trio.fail_after(300):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(source.send_all, data)
                    while len(heard) < len(data):
                        piece = await sink.receive_some()
                        assert piece, "an end, where there was none"
                        heard += piece
        except* trio.BrokenResourceError:
            assert self.faults > stream.faults, "broken by nothing"
            self.counts["broken"] += 1
            await self.end(stream)
        assert data.startswith(heard)
        self.counts["used"] += len(heard) == len(data)

    async def close(self) -> None:
        if self.streams:
            stream = self.chance.choice(self.streams)
            if self.chance.random() < 0.5:
                stream.client.reset()
            await self.end(stream)

    async def end(self, stream: Used) -> None:
        self.streams.remove(stream)
        await stream.client.aclose()
        await stream.target.aclose()

    # ── what fails ──

    async def fail(self) -> None:
        faults = [self.cut, self.cut, self.drain, self.restart_process, self.restart_router, self.block, self.away]
        fault = self.chance.choice([*faults, self.slow])
        self.faults += 1
        self.counts[fault.__name__] += 1
        await fault()

    async def cut(self) -> None:
        """A connection."""
        if connections := [one for router in self.alive for one in self._connections(router)]:
            attached_to(self.chance.choice(connections)).session.abort("the cable")

    async def drain(self) -> None:
        router = self.chance.choice(self.alive)
        for connection in self._connections(router)[:1]:
            router.agents.service.drain(connection, DrainReason.ADMIN_CLOSE, timeout=10.0)

    async def restart_process(self) -> None:
        name = f"i{self.chance.randrange(PROCESSES)}"
        if name not in self.down:
            self._begin(self._restart_process, name)

    async def restart_router(self) -> None:
        name = self.chance.choice(list(self.routers))
        if not self.down & set(self.routers) and not self.blocked:
            self._begin(self._restart_router, name)

    async def block(self) -> None:
        """A router cannot be reached; what it has is old when it can be."""
        name = self.chance.choice(list(self.routers))
        if not self.blocked and not self.down & set(self.routers):
            self.blocked.add(name)
            self.nursery.start_soon(self._block, name, self.chance.uniform(5, 150))

    async def away(self) -> None:
        """The registry."""
        if self.registry.fault is Fault.NONE:
            self.registry.fault = Fault.AWAY
            self.nursery.start_soon(self._come_back, self.chance.uniform(1, 40))

    async def slow(self) -> None:
        name, other = f"r{self.chance.randrange(ROUTERS)}", f"i{self.chance.randrange(PROCESSES)}"
        conditions = Conditions(latency=self.chance.uniform(0, 0.3), jitter=0.05)
        self.agency.fleet.network.set_conditions(name, other, conditions)

    def _begin(self, work: Callable[[str], Awaitable[None]], name: str) -> None:
        self.down.add(name)
        self.nursery.start_soon(work, name)

    async def _restart_process(self, name: str) -> None:
        await self.agency.fleet.stop(name)
        await trio.sleep(5)
        await self.agency.agent(name, connections=CONNECTIONS)
        self.down.discard(name)

    async def _restart_router(self, name: str) -> None:
        await self.agency.fleet.stop(name)
        self.agency.fleet.plane.routers.pop(self.routers[name].peer)
        await trio.sleep(5)
        self.routers[name] = await self.agency.router(name)
        self.down.discard(name)

    async def _block(self, name: str, seconds: float) -> None:
        self.agency.fleet.network.block(name)
        await trio.sleep(seconds)
        self.agency.fleet.network.heal(name)
        self.faults += 1
        await trio.sleep(60)
        self.blocked.discard(name)

    async def _come_back(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.registry.fault = Fault.NONE

    @staticmethod
    def _connections(router: Router) -> list[Connection]:
        pool = router.agents.service.table.get(AGENT)
        return list(pool.connections) if pool else []

    # ── what always holds ──

    async def check(self) -> None:
        await wait_all_tasks_blocked()
        for router in self.routers.values():
            service, lister = router.agents.service, router.agents.lister
            assert lister is not None
            found = violations(service.table, trio.current_time(), keeper=lister.keeper, book=service.metadata)
            assert not found, found
            assert len(service.table.traces) <= 1
            self._check_view(router)

    def _check_view(self, router: Router) -> None:
        """What an operator sees is what the selector sees."""
        table, now = router.agents.service.table, trio.current_time()
        view, pool = agent_view(table, AGENT, Moment(now, now)), table.get(AGENT)
        well = healthy(pool, table.limits, now) if pool else ()
        assert view["online"] == is_online(pool, table.limits, now) == bool(well)
        assert view["connectionCount"] == (len(pool.connections) if pool else 0)
        assert view["activeStreams"] == (pool.active_streams if pool else 0)


@asynccontextmanager
async def open_chaos(seed: int) -> AsyncGenerator[Chaos]:
    registry = FaultyRegistry(MemoryRegistry(clock=trio.current_time))
    async with open_agency(registry) as agency, trio.open_nursery() as nursery:
        routers = {f"r{number}": await agency.router(f"r{number}") for number in range(ROUTERS)}
        await wait_joined(*routers.values())
        for number in range(PROCESSES):
            await agency.agent(f"i{number}", connections=CONNECTIONS)
        client = await agency.fleet.node("client", routers=2)
        yield Chaos(agency, registry, client, random.Random(seed), nursery, routers)
        nursery.cancel_scope.cancel()


async def go_on(minutes: float, seed: int) -> Counter[str]:
    """What was done, when it has gone on for so long and nothing was found."""
    async with open_chaos(seed) as chaos:
        end = trio.current_time() + 60 * minutes
        check_at = 0.0
        while trio.current_time() < end:
            await chaos.step()
            if trio.current_time() >= check_at:
                check_at = trio.current_time() + 60
                await chaos.check()
        for stream in list(chaos.streams):
            await chaos.end(stream)
        await trio.sleep(300)
        await chaos.check()
        for router in chaos.routers.values():
            assert all(pool.active_streams == 0 for pool in router.agents.service.table)
        assert len(await chaos.registry.list_active_by_agent(AGENT)) <= PROCESSES * CONNECTIONS.max
        return chaos.counts


def main(hours: float = 24.0, seed: int = 1) -> None:
    logging.disable(logging.ERROR)  # there is no end of warnings
    with names_by_seed(seed):
        counts = run(go_on, 60 * hours, seed, seed=seed)
    for name, count in sorted(counts.items()):
        sys.stdout.write(f"{name:24} {count:>8}\n")


if __name__ == "__main__":
    main(float(sys.argv[1]) if sys.argv[1:] else 24.0, int(sys.argv[2]) if sys.argv[2:] else 1)
