"""The members of a soak: each is up, leaves, dies, and comes back as the same."""

from collections.abc import Sequence

import trio

from agentmesh.node import Node
from agentmesh.runtime.registry import Protocol
from agentmesh.types import PeerId
from tests.soak.world import World, member_name


class Member:
    """One member.

    Args:
        world: what it is on.
        number: which one it is.
        protocols: what it serves.

    Attributes:
        node: itself, while it is up.
    """

    def __init__(self, world: World, number: int, protocols: Sequence[Protocol]) -> None:
        self.number = number
        self.peer: PeerId = world.identity(member_name(number)).peer
        self.node: Node | None = None
        self._world = world
        self._protocols = protocols
        self._up = trio.Event()
        self._leaving = trio.Event()
        self._gone = trio.Event()
        self._scope = trio.CancelScope()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be up, until told otherwise."""
        self._leaving, self._gone = trio.Event(), trio.Event()
        with trio.CancelScope() as self._scope:
            async with await self._world.open_node(self.number, self._protocols) as node:
                self.node = node
                self._up.set()
                task_status.started()
                await self._leaving.wait()
        self._gone.set()

    async def wait_node(self) -> Node:
        """The member once it is up."""
        while self.node is None:
            await self._up.wait()
        return self.node

    async def leave(self) -> None:
        """Go, as a program does that is told to stop."""
        self._forget_node()
        self._leaving.set()
        await self._gone.wait()

    async def die(self) -> None:
        """Go, as a program does that is killed."""
        node = self._forget_node()
        self._world.vanish(self.number)
        for session in node.host.connections:
            session.abort("killed")
        self._scope.cancel()
        await self._gone.wait()

    def _forget_node(self) -> Node:
        assert self.node is not None
        node, self.node, self._up = self.node, None, trio.Event()
        return node
