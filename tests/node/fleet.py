"""Whole routers and nodes over a simulated network, in virtual time, with a control plane that is a value."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import Any, TypeVar

import attrs
import trio

from agentmesh.abc import Stream, Transport
from agentmesh.identity import Identity
from agentmesh.membership import Enrollment, Membership
from agentmesh.node import Node, NodeConfig, run_node_as
from agentmesh.pool.registry import ConnectionRegistry
from agentmesh.router import Router, RouterConfig, open_router_as
from agentmesh.runtime.nursery import open_background
from agentmesh.runtime.registry import Protocol
from agentmesh.testing import MemoryNetwork
from agentmesh.types import Address, PeerId, ProtocolId
from tests.membership.plane import NODE_TOKEN, ROUTER_TOKEN, Plane, wall_clock

ECHO = ProtocolId("/test/echo/1.0.0")
T = TypeVar("T")

ANY = Address.parse("/memory/0")


async def echo(stream: Stream) -> None:
    while data := await stream.receive_some():
        await stream.send_all(data)


@attrs.frozen
class Fleet:
    """Routers and nodes by name; those that are up go down with it."""

    network: MemoryNetwork
    plane: Plane
    nursery: trio.Nursery
    up: dict[str, tuple[trio.Event, trio.Event]] = attrs.Factory(dict[str, tuple[trio.Event, trio.Event]])

    def transport(self, name: str) -> Transport:
        """How a router or a node dials and listens."""
        return self.network.transport(name)

    def listen_address(self, name: str) -> Address:
        """Where a router listens."""
        return ANY

    async def router(
        self,
        name: str,
        *,
        plane: Plane | None = None,
        listen: int = 1,
        labels: Mapping[str, str] | None = None,
        identity: Identity | None = None,
        registry: ConnectionRegistry | None = None,
        **settings: Any,
    ) -> Router:
        """Start a router that is leased with `plane`, and listed by the fleet's, attested `labels`."""
        plane = plane or self.plane
        membership = await self.member(plane, ROUTER_TOKEN, identity)
        where = (self.listen_address(name),) * listen
        config = RouterConfig(enrollment=Enrollment(control_plane="http://cp"), listen=where, **settings)
        opening = open_router_as(membership, config, transports=[self.transport(name)], registry=registry)
        router: Router = await self.nursery.start(self.keep, name, opening)
        self.plane.routers[router.peer] = attrs.evolve(plane.routers[router.peer], labels=labels or {})
        return router

    async def node(
        self,
        name: str,
        *,
        protocols: Sequence[Protocol] = (),
        labels: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> Node:
        """Start a node, attested `labels`; it is attached if a router was there."""
        membership = await self.member(self.plane, NODE_TOKEN, labels=labels)
        config = NodeConfig(enrollment=Enrollment(control_plane="http://cp"), **settings)
        opening = run_node_as(
            membership,
            config,
            transports=[self.transport(name)],
            protocols=[Protocol(ECHO, echo), *protocols],
            rng=Random(name),
        )
        node: Node = await self.nursery.start(self.keep, name, opening)
        return node

    async def stop(self, name: str) -> None:
        """Close a router or a node as its program does when it is told to. It stays on the control plane's list."""
        stop, stopped = self.up.pop(name)
        stop.set()
        await stopped.wait()

    async def keep(self, name: str, opening: AbstractAsyncContextManager[T], task_status: trio.TaskStatus[T]) -> None:
        """Have something up until it is stopped by its name; for `nursery.start`."""
        stop, stopped = self.up[name] = trio.Event(), trio.Event()
        async with opening as opened:
            task_status.started(opened)
            await stop.wait()
        stopped.set()

    async def member(
        self,
        plane: Plane,
        token: str,
        identity: Identity | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Membership:
        """A membership that has begun."""
        identity = identity or Identity.generate()
        enrollment = Enrollment(control_plane="http://cp", token=token, labels=labels or {})
        membership = Membership(identity, plane.client(identity), enrollment, None, wall_clock)
        await membership.begin()
        return membership


@asynccontextmanager
async def open_fleet(plane: Plane | None = None) -> AsyncGenerator[Fleet]:
    async with open_background() as nursery:
        yield Fleet(MemoryNetwork(seed=1), plane or Plane(), nursery)


async def call(caller: Node, peer: PeerId, text: bytes = b"hello") -> None:
    """Have something echoed by another member."""
    async with await caller.open_stream(peer, ECHO) as stream:
        await stream.send_all(text)
        received = b""
        while len(received) < len(text):
            received += await stream.receive_some()
    assert received == text


async def lone(fleet: Fleet, name: str, router: Router, **settings: Any) -> Node:
    """A node that holds this router only."""
    others, fleet.plane.routers = fleet.plane.routers, {router.peer: fleet.plane.routers[router.peer]}
    node = await fleet.node(name, routers=1, **settings)
    fleet.plane.routers = others
    assert node.routers == (router.peer,)
    return node


async def wait_attached(node: Node, *routers: Router, within: float = 60.0) -> float:
    """Wait, in steps of virtual time, until a node holds just these routers. Returns how long it took."""
    began = trio.current_time()
    with trio.fail_after(within):
        while set(node.routers) != {router.peer for router in routers}:  # noqa: ASYNC110 - seen from outside
            await trio.sleep(0.05)
    return trio.current_time() - began
