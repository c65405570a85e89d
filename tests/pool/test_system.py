"""Routers, processes of agents and clients as a whole: who leaves is not missed, and who comes again is known."""

import attrs
import trio
from trio.testing import MockClock

from agentmesh.node import Node
from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.router.claims import ConnectionKey
from agentmesh.pool.router.selection import is_online
from agentmesh.protocols.pool import Code
from agentmesh.router import Router
from agentmesh.testing.links import Conditions
from tests.pool.relays import open_relays
from tests.pool.worlds import ECHO, say
from tests.router.agents.agency import AGENT, Agency, dial, open_agency, wait_joined

TWO = ConnectionsConfig(min=2, max=2)


@attrs.define
class Opens:
    """Opens of clients, one after another, and what became of them."""

    agency: Agency
    made: int = 0
    failed: list[str] = attrs.Factory(list[str])

    async def go_on(self, client: Node, agent: str, pause: float) -> None:
        while True:
            self.made += 1
            opening = await dial(client, agent, ECHO)
            if opening.stream is None:
                self.failed.append(f"{trio.current_time():.1f} {agent} {opening.result}")
            else:
                assert await say(opening.stream) == b"hello"
                await opening.stream.aclose()
            await trio.sleep(pause)


async def test_who_leaves_while_streams_are_opened_is_not_missed(autojump_clock: MockClock) -> None:
    """A process leaves in two phases, with opens on their way to it through one router and through two: each of them
    is made, elsewhere if need be, and its target sees one connection.
    """
    async with open_relays() as world:
        for number in (1, 2):
            world.agency.fleet.network.set_conditions(f"i{number}", f"r{number}", Conditions(latency=0.4))
        opens = Opens(world.agency)
        async with trio.open_nursery() as nursery:
            for client in world.clients[:2]:
                for pause in (0.1, 0.15, 0.2, 0.25):
                    nursery.start_soon(opens.go_on, client, AGENT, pause)
            await trio.sleep(3)
            await world.agency.fleet.stop("i1")
            await trio.sleep(6)
            nursery.cancel_scope.cancel()
        assert opens.failed == []
        assert opens.made > 30
        assert 0 <= opens.made - len(world.agency.targets.reached) <= 8  # those that were under way in the end
        assert world.complaints() == []


def online(routers: list[Router], agent: str) -> bool:
    now = trio.current_time()
    tables = [router.agents.service.table for router in routers]
    return any(is_online(table.get(agent), table.limits, now) for table in tables)


async def test_a_router_that_stops_takes_nobody_offline(autojump_clock: MockClock) -> None:
    """While it says goodbye, and after: every agent is there all the time, and streams are opened as ever."""
    async with open_agency() as agency:
        routers = [await agency.router(f"r{number}") for number in range(3)]
        await wait_joined(*routers)
        agents = ["one", "two", "three"]
        for name in agents:
            await agency.agent(f"i-{name}", agent_id=name, connections=TWO)
        client, opens = await agency.client("c", routers[2]), Opens(agency)
        missed: list[tuple[float, str]] = []
        async with trio.open_nursery() as nursery:
            for name in agents:
                nursery.start_soon(opens.go_on, client, name, 0.3)
            nursery.start_soon(agency.fleet.stop, "r0")
            for _ in range(600):
                await trio.sleep(0.1)
                missed += [(trio.current_time(), name) for name in agents if not online(routers, name)]
            nursery.cancel_scope.cancel()
        assert missed == []
        assert opens.failed == []
        assert opens.made > 300


def known(router: Router) -> dict[ConnectionKey, str]:
    pool = router.agents.service.table.get(AGENT)
    return {one.key: one.claim.instance_id for one in pool.connections} if pool else {}


async def test_a_process_that_starts_again_is_the_same_one_with_other_connections(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        router = await agency.router("r0")
        await agency.agent("i1", connections=TWO)
        before = known(router)
        await agency.fleet.stop("i1")
        assert known(router) == {}
        await agency.agent("i1", connections=TWO)
        after = known(router)
        assert set(before.values()) == set(after.values()) == {"i1"}
        assert {key.connection_id for key in before}.isdisjoint(key.connection_id for key in after)
        assert len(await agency.registry.list_active_by_agent(AGENT)) == 2


async def test_a_client_is_told_when_nobody_is_left(autojump_clock: MockClock) -> None:
    async with open_relays() as world:
        for number in (1, 2):
            await world.agency.fleet.stop(f"i{number}")
        for client in world.clients:
            opening = await dial(client)
            assert opening.result.code is Code.AGENT_OFFLINE
