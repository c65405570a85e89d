"""Two routers behind one address, either of which may know pools or not, and an agent of either age: all get along."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product

import attrs
import pytest
import trio
from trio.testing import MockClock

from agentmesh.abc import Admission
from agentmesh.identity import Identity
from agentmesh.pool.agent.access import AccessPolicy
from agentmesh.pool.agent.agent import AgentPool, AgentSettings
from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.agent.instance import Instance
from agentmesh.pool.agent.targets import Connector
from agentmesh.pool.router.attached import Bearer, attached_to
from agentmesh.pool.router.leased import PooledStream
from agentmesh.pool.router.service import PoolService
from agentmesh.pool.router.table import PoolTable
from agentmesh.protocols.pool import POOL_ID, open_protocol, pool_protocol
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.nursery import open_background
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.session import MuxSession
from agentmesh.testing.network import MemoryNetwork
from tests.pool.old_router import OldRouter
from tests.pool.test_pool_legacy import OldAgent, serve_echo
from tests.pool.worlds import ANYWHERE, Targets, asked, say

OLD, NEW = "old", "new"
AGENT = "agent"


@attrs.define
class NewRouter:
    service: PoolService

    @property
    def sessions(self) -> list[MuxSession]:
        return [attached_to(one).session for pool in self.service.table for one in pool.connections]

    async def open(self) -> trio.abc.HalfCloseableStream | None:
        found = await self.service.opener.open(AGENT, asked())
        return found if isinstance(found, PooledStream) else None


def protocol_of(router: OldRouter | NewRouter) -> Protocol:
    if isinstance(router, NewRouter):
        return router.service.protocol(Admission.ANYONE)
    return pool_protocol(router.serve, Admission.ANYONE)


@attrs.define
class World:
    """Routers behind one address, which leads to them in turn."""

    routers: list[OldRouter | NewRouter]
    hosts: list[Host]
    dials: int = 0

    @property
    def count(self) -> int:
        return sum(len(router.sessions) for router in self.routers)

    async def streams(self) -> list[trio.abc.HalfCloseableStream]:
        """One by way of each router that has a connection."""
        opened = [await router.open() for router in self.routers]
        return [stream for stream in opened if stream is not None]


@asynccontextmanager
async def open_world(ages: tuple[str, str], most: int) -> AsyncGenerator[World]:
    network, identity = MemoryNetwork(seed=1), Identity.generate()
    world = World([], [])
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(open_background())
        targets = Targets(nursery)
        for number, age in enumerate(ages):
            service = PoolService(PoolTable(f"n{number}"), lambda _: Bearer(AGENT, "t"))
            router = NewRouter(service) if age == NEW else OldRouter(AGENT)
            opening = open_host(
                identity=Identity.generate(),
                transports=[network.transport(f"r{number}")],
                protocols=[protocol_of(router)],
                listen=[ANYWHERE],
            )
            world.hosts.append(await stack.enter_async_context(opening))
            world.routers.append(router)

        async def dial() -> MuxSession:
            router = world.hosts[world.dials % 2]
            world.dials += 1
            return await agent.connect_anew(router.peer, router.addresses)

        settings = AgentSettings(
            agent_id=AGENT,
            instance=Instance("i", "boot", is_kept=True),
            connections=ConnectionsConfig(min=most, max=most),
        )
        connector = Connector(AccessPolicy.read(list[Mapping[str, object]]([{}])), targets.resolve, targets.dial)
        pool = AgentPool(settings, dial, connector, chance=lambda: 0.5)
        agent = await stack.enter_async_context(
            open_host(
                identity=identity, transports=[network.transport("i")], protocols=[pool.protocol(Admission.ANYONE)]
            )
        )
        (await stack.enter_async_context(open_background())).start_soon(pool.run)
        yield world


@pytest.mark.parametrize(("first", "second", "most"), list(product([OLD, NEW], [OLD, NEW], [1, 4])))
async def test_an_agent_that_knows_pools(autojump_clock: MockClock, first: str, second: str, most: int) -> None:
    async with open_world((first, second), most) as world:
        await trio.sleep(120)
        everywhere_new = first == second == NEW
        if most == 1 or first == OLD:  # the first router says nothing of others
            assert world.count == 1
        else:
            assert world.count == (4 if everywhere_new else 2)
        streams = await world.streams()
        assert len(streams) == sum(bool(router.sessions) for router in world.routers)
        for _ in range(20):
            await trio.sleep(30)
            assert [await say(stream) for stream in streams] == [b"hello"] * len(streams)
        assert world.dials <= most + 4  # nobody is flooded, in ten minutes
        for router in world.routers:
            for session in list(router.sessions)[:1]:
                session.abort("the cable")
        await trio.sleep(90)
        assert world.count >= 1
        assert [await say(stream) for stream in await world.streams()]
        assert most > 1 or world.count == 1


@pytest.mark.parametrize("age", [OLD, NEW])
async def test_an_agent_of_before_has_its_one_connection(autojump_clock: MockClock, age: str) -> None:
    network, identity = MemoryNetwork(seed=1), Identity.generate()
    service = PoolService(PoolTable("n"), lambda _: Bearer(AGENT, "t"))
    router = NewRouter(service) if age == NEW else OldRouter(AGENT)
    async with (
        open_host(
            identity=Identity.generate(),
            transports=[network.transport("r")],
            protocols=[protocol_of(router)],
            listen=[ANYWHERE],
        ) as host,
        open_host(
            identity=identity,
            transports=[network.transport("i")],
            protocols=[open_protocol(serve_echo, Admission.ANYONE)],
        ) as old,
    ):
        session = await old.connect(host.peer, host.addresses)
        async with await session.open_stream(POOL_ID) as stream:
            assert (await OldAgent(stream).hello(3))["accepted"]
            opened = await router.open()
            assert opened is not None
            assert await say(opened) == b"hello"
            await opened.aclose()
