"""A router that stops behind a load balancer, which goes on sending agents to it: in virtual time."""

import itertools
import math
from collections.abc import Callable, Iterable
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from agentmesh.agent.ways import MAX_LOOKS
from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.agent.controller import MAX_REDIALS
from agentmesh.pool.router.selection import is_online
from agentmesh.router import Router
from agentmesh.types import Address
from tests.agent.fleet import AGENT, TWO, AgentFleet, open_agent_fleet, open_at, spread, wait_until
from tests.pool.worlds import say

ONE = ConnectionsConfig()
SETTLED = 60.0  # seconds after which a connection is none of those that may fail at once
HELD = 10.0  # seconds that a stream is open on the router that stops
AWAY = 20.0  # seconds that a router is away which is started again
MINUTES = 300.0  # seconds
BACKOFF = 1 + 2 + 4 + 8 + 16  # seconds that it waits between its attempts meanwhile, at most
LOOK = 0.01  # seconds

Balance = Callable[[], Iterable[int]]


def mostly_to_the_first() -> Iterable[int]:
    """To the router that stops, three times of four."""
    return itertools.cycle((0, 0, 0, 1))


def in_turn() -> Iterable[int]:
    return itertools.cycle((0, 1))


def to_the_first() -> Iterable[int]:
    """By the source, say: to the router that stops, as long as it answers."""
    return itertools.repeat(0)


class Balancer:
    """Sends each dial to one of two routers, or to the other when that one does not answer any more."""

    def __init__(self, routers: tuple[Router, Router], balance: Balance) -> None:
        self._addresses = [router.addresses[0].without_peer() for router in routers]
        self._turns = iter(balance())
        self.gone = False

    def __call__(self) -> Address:
        turn = next(self._turns)
        return self._addresses[1 if self.gone else turn]


def online(routers: Iterable[Router]) -> bool:
    """Whether streams can be opened at any of them."""
    tables = [router.agents.service.table for router in routers]
    return any(is_online(table.get(AGENT), table.limits, trio.current_time()) for table in tables)


@attrs.define
class Watch:
    """How the agent fares while its router stops.

    Attributes:
        offline: seconds without a connection that streams could be opened on.
        whole: seconds after which the other router had all its connections.
    """

    offline: float = 0.0
    whole: float = math.inf

    async def run(self, routers: tuple[Router, Router], connections: int) -> None:
        began = trio.current_time()
        while True:
            now = trio.current_time()
            if not online(routers):
                self.offline += LOOK
            if spread(routers[1]) == [connections]:
                self.whole = min(self.whole, now - began)
            await trio.sleep(LOOK)


async def stop_the_first(
    fleet: AgentFleet, balancer: Balancer, routers: tuple[Router, Router], connections: int
) -> Watch:
    """Stop it, with a stream open for a while, and see what becomes of the agent."""
    stream, watch = await open_at(routers[0]), Watch()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run, routers, connections)
        nursery.start_soon(fleet.stop, "r1")
        await trio.sleep(HELD)
        assert await say(stream) == b"hello"
        await stream.aclose()
        await wait_until(lambda: "r1" not in fleet.up and not spread(routers[0])[0])
        balancer.gone = True
        await wait_until(lambda: watch.whole < math.inf)
        nursery.cancel_scope.cancel()
    assert await say(await open_at(routers[1])) == b"hello"
    return watch


@pytest.mark.parametrize("connections", [ONE, TWO], ids=["one", "two"])
@pytest.mark.parametrize("balance", [mostly_to_the_first, in_turn])
async def test_the_agent_is_not_away_for_a_moment(
    autojump_clock: MockClock, tmp_path: Path, connections: ConnectionsConfig, balance: Balance
) -> None:
    async with open_agent_fleet(tmp_path) as fleet:
        routers = await fleet.router("r1"), await fleet.router("r2")
        balancer = Balancer(routers, balance)
        await fleet.process(connections=connections, behind=balancer)
        await wait_until(lambda: sum(spread(*routers)) == connections.min)
        assert spread(routers[0]) == [1]
        await trio.sleep(SETTLED)
        dials = fleet.sessions_made("agent")
        watch = await stop_the_first(fleet, balancer, routers, connections.min)
        assert watch.offline <= 2 * LOOK
        assert watch.whole < 3.0
        assert fleet.sessions_made("agent") - dials <= MAX_LOOKS * (1 + MAX_REDIALS)


async def test_a_balancer_that_knows_but_the_one_that_stops(autojump_clock: MockClock, tmp_path: Path) -> None:
    """The agent is not in until that is gone; it does not storm it, and is there as soon as there is another."""
    async with open_agent_fleet(tmp_path) as fleet:
        routers = await fleet.router("r1"), await fleet.router("r2")
        balancer = Balancer(routers, to_the_first)
        await fleet.process(behind=balancer)
        await wait_until(lambda: spread(*routers) == [1, 0])
        await trio.sleep(SETTLED)
        dials = fleet.sessions_made("agent")
        watch = await stop_the_first(fleet, balancer, routers, 1)
        assert HELD < watch.offline < HELD + BACKOFF
        assert MAX_LOOKS < fleet.sessions_made("agent") - dials <= 10 * MAX_LOOKS


async def test_one_router_after_another_is_started_again(autojump_clock: MockClock, tmp_path: Path) -> None:
    """Each stops when the one before has been back for minutes; the agent is never away, and at both in the end."""
    async with open_agent_fleet(tmp_path) as fleet:
        up = {name: await fleet.router(name) for name in ("r1", "r2")}
        turns, away = itertools.count(), set[str]()

        def choose() -> Address:
            routers = [up[name] for name in sorted(up.keys() - away)]
            return routers[next(turns) % len(routers)].addresses[0].without_peer()

        async def watch() -> None:
            while True:
                offline.append(not online(up.values()))
                await trio.sleep(10 * LOOK)

        await fleet.process(connections=TWO, behind=choose)
        await wait_until(lambda: sum(spread(*up.values())) == 2)
        await trio.sleep(SETTLED)
        offline = list[bool]()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            for name in ("r1", "r2"):
                identity = up[name].host.identity
                await fleet.stop(name)
                away.add(name)
                await trio.sleep(AWAY)
                assert sum(spread(*up.values())) == 2
                up[name] = await fleet.router(name, identity=identity)
                away.remove(name)
                await trio.sleep(MINUTES)
                assert spread(*up.values()) == [1, 1]
            nursery.cancel_scope.cancel()
        assert not any(offline)
