"""Routers and leaves over memory and in virtual time."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.abc import Admission
from agentmesh.protocols.floodsub import CutReason, Floodsub, FloodsubLimits, Policy, Role, TopicReader
from agentmesh.runtime.host import Host
from agentmesh.testing import MemoryNetwork
from tests.runtime.hosts import admit, open_named

TOPIC = "/test/topic"


@attrs.define(eq=False)
class Node:
    """One host and its floodsub."""

    name: str
    host: Host
    floodsub: Floodsub
    ended: list[CutReason] = attrs.Factory(list[CutReason])
    failed: list[trio.BrokenResourceError] = attrs.Factory(list[trio.BrokenResourceError])

    def cuts(self) -> dict[str, int]:
        return {str(reason): count for reason, count in self.floodsub.statistics().cuts.items() if count}

    def fates(self) -> dict[str, int]:
        return {str(fate): count for fate, count in self.floodsub.statistics().messages.items() if count}


@attrs.define
class Net:
    """The hosts of one test. Tasks that keep links go in `nursery`."""

    stack: AsyncExitStack
    nursery: trio.Nursery
    network: MemoryNetwork = attrs.Factory(MemoryNetwork)
    nodes: list[Node] = attrs.Factory(list[Node])

    async def add(self, role: Role, limits: FloodsubLimits | None = None, policy: Policy | None = None) -> Node:
        floodsub, name = Floodsub(role, limits, policy, lambda: 2e9), f"{role.value}-{len(self.nodes)}"
        host = await self.stack.enter_async_context(open_named(self.network, name, [floodsub.protocol()]))
        await wait_all_tasks_blocked()
        self.nodes.append(node := Node(name, host, floodsub))
        return node

    async def introduce(self, one: Node, other: Node) -> None:
        """Two nodes hold a session and have admitted each other."""
        await one.host.connect(other.host.peer, other.host.addresses)
        await wait_all_tasks_blocked()
        admit(other.host, one.host.peer, level_of(one))
        admit(one.host, other.host.peer, level_of(other))

    async def join(self, one: Node, other: Node) -> trio.CancelScope:
        """Link a node to a router. Returns the scope of the task that keeps the link."""
        await self.introduce(one, other)
        scope = trio.CancelScope()

        async def keep() -> None:
            try:
                with scope:
                    one.ended.append(await one.floodsub.attach(other.host.peer))
            except trio.BrokenResourceError as exc:  # as when a host closes
                one.failed.append(exc)

        self.nursery.start_soon(keep)
        await wait_all_tasks_blocked()
        return scope

    async def add_leaf(self, *routers: Node, limits: FloodsubLimits | None = None) -> Node:
        leaf = await self.add(Role.LEAF, limits)
        for router in routers:
            await self.join(leaf, router)
        return leaf

    def listen(self, node: Node, topic: str = TOPIC, max_unread: int = 256) -> TopicReader:
        """Subscribe until the test ends."""
        return self.stack.enter_context(node.floodsub.subscribe(topic, max_unread))


def level_of(node: Node) -> Admission:
    return Admission.ROUTER if node.floodsub.role is Role.ROUTER else Admission.MEMBER


@asynccontextmanager
async def open_net() -> AsyncGenerator[Net]:
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        yield Net(stack, nursery)


async def unread(*readers: TopicReader) -> list[list[bytes]]:
    """What each has heard since it was looked at, once nothing is under way any more."""
    await wait_all_tasks_blocked()
    return [[(await anext(reader)).data for _ in range(len(reader))] for reader in readers]
