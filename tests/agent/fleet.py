"""Whole routers and agents' processes over a simulated network, in virtual time."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random

import attrs
import trio

from agentmesh.abc import ByteStream, Listener, Transport
from agentmesh.agent import AgentProcess, AgentProcessConfig, open_agent_as
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment, Membership
from agentmesh.pool.agent.access import AccessPolicy, Rule
from agentmesh.pool.agent.config import AgentConfig, ConnectionsConfig
from agentmesh.pool.agent.targets import Connector
from agentmesh.pool.router.leased import PooledStream
from agentmesh.router import Router
from agentmesh.runtime.nursery import open_background
from agentmesh.testing import MemoryNetwork
from agentmesh.types import Address, PeerId
from tests.membership.plane import NODE_TOKEN, Plane
from tests.node.fleet import Fleet
from tests.pool.worlds import ECHO, Targets, asked

AGENT = "devbox"
SERVER_URL = "wss://lb.example/ws/agent/v1"
SERVER = Address.parse("/dns/lb.example/tcp/443/wss")
TWO = ConnectionsConfig(min=2, max=2)
ANYTHING = AccessPolicy((Rule(),))  # that is public


@attrs.define
class Balancer(Transport):
    """What is behind SERVER: `choose` says where each dial leads. Everything else is dialled as it is."""

    network: Transport
    choose: Callable[[], Address]

    def can_dial(self, address: Address) -> bool:
        return address == SERVER or self.network.can_dial(address)

    def can_listen(self, address: Address) -> bool:
        return False

    def dial(self, address: Address) -> AbstractAsyncContextManager[ByteStream]:
        return self.network.dial(self.choose() if address == SERVER else address)

    def listen(self, address: Address) -> AbstractAsyncContextManager[Listener]:
        raise AssertionError("agents do not listen")


@attrs.frozen(kw_only=True)
class AgentFleet(Fleet):
    """Routers and agents by name.

    Attributes:
        targets: what agents reach.
        folder: below it each process has its state.
    """

    targets: Targets
    folder: Path

    async def process(
        self,
        name: str = "agent",
        connections: ConnectionsConfig | None = None,
        *,
        behind: Callable[[], Address] | None = None,
        labels: Mapping[str, str] | None = None,
        identity: Identity | None = None,
    ) -> AgentProcess:
        """Start a process of the agent, attested `labels`.

        Args:
            behind: where each dial of its server's URL leads; without it, it takes the routers that are listed.
        """
        membership = await self.agents_member(labels, identity)
        config = self.config(name, connections, SERVER_URL if behind else "")
        transport = self.network.transport(name)
        opening = open_agent_as(
            membership,
            config,
            transports=[Balancer(transport, behind) if behind else transport],
            connector=Connector(ANYTHING, self.targets.resolve, self.targets.dial),
            rng=Random(name),
        )
        process: AgentProcess = await self.nursery.start(self.keep, name, opening)
        return process

    def sessions_made(self, name: str) -> int:
        """How many connections of a process the network has carried."""
        return sum(entry.what == "dial" and entry.source == name for entry in self.network.trace)

    async def agents_member(
        self, labels: Mapping[str, str] | None = None, identity: Identity | None = None
    ) -> Membership:
        return await self.member(self.plane, NODE_TOKEN, identity, {"agent": AGENT} if labels is None else labels)

    def config(
        self, name: str, connections: ConnectionsConfig | None = None, server_url: str = ""
    ) -> AgentProcessConfig:
        return AgentProcessConfig(
            enrollment=Enrollment(control_plane="http://cp"),
            agent=AgentConfig(id=AGENT, server_url=server_url, connections=connections or ConnectionsConfig()),
            state_dir=self.folder / name,
        )


@asynccontextmanager
async def open_agent_fleet(folder: Path, plane: Plane | None = None) -> AsyncGenerator[AgentFleet]:
    async with open_background() as nursery:
        yield AgentFleet(
            network=MemoryNetwork(seed=1),
            plane=plane or Plane(),
            nursery=nursery,
            targets=Targets(nursery),
            folder=folder,
        )


def spread(*routers: Router) -> list[int]:
    """How many connections of the agent each router has."""
    return [len(ids_at(router)) for router in routers]


def ids_at(*routers: Router) -> set[str]:
    """The connections of the agent that some routers have."""
    pools = [router.agents.service.table.get(AGENT) for router in routers]
    return {one.connection_id for pool in pools if pool is not None for one in pool.connections}


async def wait_until(holds: Callable[[], bool], within: float = 120.0) -> None:
    """Wait, in steps of virtual time."""
    with trio.fail_after(within):
        while not holds():  # noqa: ASYNC110 - seen from outside
            await trio.sleep(0.05)


async def open_at(router: Router, host: str = ECHO) -> PooledStream:
    """A stream through the agent."""
    stream = await router.agents.service.opener.open(AGENT, asked(host))
    assert isinstance(stream, PooledStream), stream
    return stream


def held_by(process: AgentProcess) -> set[PeerId]:
    """The routers that it has connections to."""
    return {link.session.peer for link in process.connections}
