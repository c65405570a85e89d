"""Whole routers that share a registry, processes of agents, and clients: over a simulated network, in virtual time."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import attrs
import trio

from agentmesh.agent import AgentProcess, AgentProcessConfig, open_agent_as
from agentmesh.membership import Enrollment
from agentmesh.node import Node
from agentmesh.pool.agent.access import AccessPolicy
from agentmesh.pool.agent.config import AgentConfig, ConnectionsConfig
from agentmesh.pool.agent.targets import Connector
from agentmesh.pool.registry import ConnectionRegistry, MemoryRegistry
from agentmesh.protocols.pool import Code, Open, Opening, open_target
from agentmesh.protocols.pool.open_wire import DIAL_ID
from agentmesh.router import Router
from agentmesh.runtime.nursery import open_background
from tests.membership.plane import NODE_TOKEN, Plane
from tests.node.fleet import Fleet, lone, open_fleet
from tests.pool.worlds import ECHO, Targets

AGENT = "devbox"


@attrs.frozen
class Agency:
    """Routers, agents' processes and clients by name."""

    fleet: Fleet
    registry: ConnectionRegistry
    targets: Targets

    async def router(self, name: str, **settings: Any) -> Router:
        """A router that knows the others' connections."""
        return await self.fleet.router(name, registry=self.registry, **settings)

    async def agent(
        self,
        name: str,
        router: Router | None = None,
        *,
        agent_id: str = AGENT,
        connections: ConnectionsConfig | None = None,
        policy: Sequence[Mapping[str, object]] = ({},),
    ) -> AgentProcess:
        """A process that is connected to any routers, or to this one alone."""
        plane = self.fleet.plane if router is None else only(self.fleet.plane, router)
        membership = await self.fleet.member(plane, NODE_TOKEN, labels={"agent": agent_id})
        config = AgentProcessConfig(
            enrollment=Enrollment(control_plane="http://cp"),
            agent=AgentConfig(
                id=agent_id, server_url="", instance_id=name, connections=connections or ConnectionsConfig()
            ),
        )
        connector = Connector(AccessPolicy.read(list(policy)), self.targets.resolve, self.targets.dial)
        opening = open_agent_as(
            membership, config, transports=[self.fleet.transport(name)], connector=connector, rng=Random(name)
        )
        agent: AgentProcess = await self.fleet.nursery.start(self.fleet.keep, name, opening)
        await wait_connected(agent, (connections or ConnectionsConfig()).min)
        return agent

    async def client(self, name: str, router: Router) -> Node:
        """A node that is attached to this router alone."""
        return await lone(self.fleet, name, router)


def only(plane: Plane, router: Router) -> Plane:
    """A control plane that lists this router alone, and is the same otherwise."""
    return attrs.evolve(plane, routers={router.peer: plane.routers[router.peer]})


async def wait_connected(agent: AgentProcess, count: int = 1) -> None:
    """Until a process has so many connections, and lets none go."""
    with trio.fail_after(60):
        while not len(agent.connections) == len(agent.pool.links) == count:  # noqa: ASYNC110 - seen from outside
            await trio.sleep(0.05)


async def wait_joined(*routers: Router) -> None:
    """Until each router is joined to all others."""
    with trio.fail_after(60):
        while any(len(router.federation.peers) < len(routers) - 1 for router in routers):  # noqa: ASYNC110
            await trio.sleep(0.05)


async def dial(client: Node, agent: str = AGENT, host: str = ECHO, port: int = 22) -> Opening:
    """What a client's first router makes of an open."""
    session = client.host.session(client.routers[0])
    assert session is not None
    return await open_target(session, Open(agent, "tcp", host, port), protocol=DIAL_ID)


async def dialled(client: Node, agent: str = AGENT, host: str = ECHO) -> trio.abc.HalfCloseableStream:
    """A stream to a target."""
    opening = await dial(client, agent, host)
    assert opening.result.code is Code.OK, opening
    assert opening.stream is not None
    return opening.stream


@asynccontextmanager
async def open_agency(registry: ConnectionRegistry | None = None) -> AsyncGenerator[Agency]:
    async with open_fleet() as fleet, open_background() as nursery:
        yield Agency(fleet, registry or MemoryRegistry(clock=trio.current_time), Targets(nursery))
