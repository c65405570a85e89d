"""Members and a router of agentmesh, as their programs compose them: a worker."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio

from agentmesh.abc import Stream, StreamLimits
from agentmesh.errors import NotConnectedError
from agentmesh.node import Node, NodeConfig, run_node_as
from agentmesh.protocols.relay import DataPathConfig
from agentmesh.router import RouterConfig, open_router_as
from agentmesh.runtime.registry import Protocol
from agentmesh.types import Address, PeerId, ProtocolId
from benchmarks.audience import TOPIC, Audience, publisher_command
from benchmarks.commands import Answer, Command, Serve, run_worker
from benchmarks.crowd import attach_many
from benchmarks.stacks.plane import ENROLLMENT, enter
from benchmarks.traffic import ECHO, bulk, caller_commands, receive_exactly, serve

BENCH = ProtocolId("/bench/1.0.0")
LOOPBACK = Address.parse("/ip4/127.0.0.1/tcp/0")
MAX_STREAMS = 4096  # of one peer: the scenarios close as fast as they open


@asynccontextmanager
async def open_member(settings: Answer, listen: tuple[Address, ...] = ()) -> AsyncGenerator[Node]:
    """A node that is attached to the router. Raises NotConnectedError when it cannot be."""
    membership = await enter(settings["key"], settings["R"]["address"])
    config = NodeConfig(enrollment=ENROLLMENT, routers=1, listen=listen)
    protocol = Protocol(BENCH, serve, limits=StreamLimits(MAX_STREAMS))
    async with run_node_as(membership, config, protocols=[protocol]) as node:
        if not node.routers:
            raise NotConnectedError("the router did not take this member in time")
        yield node


async def run_router(settings: Answer, ready: Serve) -> None:
    membership = await enter(settings["key"])
    config = RouterConfig(enrollment=ENROLLMENT, listen=(LOOPBACK,))
    relay = attrs.evolve(config.relay, data_path=DataPathConfig(enabled=settings["data_path"]))
    async with open_router_as(membership, attrs.evolve(config, relay=relay)) as router:
        await ready({"address": str(router.addresses[0])})


async def run_server(settings: Answer, ready: Serve) -> None:
    listen = (LOOPBACK,) if settings["direct"] else ()
    async with open_member(settings, listen) as node:
        await ready({"peer": str(node.peer), "addresses": [str(address) for address in node.host.addresses]})


class Caller:
    """Streams to the server: by a circuit, or over a connection of the two members' own."""

    def __init__(self, node: Node, settings: Answer) -> None:
        self._node = node
        self._peer = PeerId.parse(settings["B"]["peer"])
        own = map(Address.parse, settings["B"]["addresses"] if settings["direct"] else ())
        self._addresses = [address for address in own if address.circuit is None]

    async def open(self) -> Stream:
        if self._addresses and self._node.host.session(self._peer) is None:
            await self._node.host.connect(self._peer, self._addresses)
        return await self._node.open_stream(self._peer, BENCH)

    @asynccontextmanager
    async def fresh(self) -> AsyncGenerator[Stream]:
        """A stream on a session that is new, and ends with the block."""
        await self._end_session()
        try:
            async with await self.open() as stream:
                yield stream
        finally:
            await self._end_session()

    async def _end_session(self) -> None:
        while (session := self._node.host.session(self._peer)) is not None:
            await session.aclose()
            await trio.lowlevel.checkpoint()  # the host sees that it ended


async def run_caller(settings: Answer, ready: Serve) -> None:
    async with open_member(settings) as node:
        caller = Caller(node, settings)
        publish = publisher_command(partial(node.publish, TOPIC))
        await ready({}, {**caller_commands(caller.open, caller.fresh), "publish": publish})


class Crowd:
    """Many members in one process, each with a circuit to the server if that is asked for."""

    def __init__(self, settings: Answer, nursery: trio.Nursery) -> None:
        self._settings = settings
        self._nursery = nursery
        self._callers: list[Caller] = []
        self._standing: list[Stream] = []
        self.audience = Audience()

    async def attach(self) -> None:
        await self._nursery.start(self._stay)

    async def listen(self) -> None:
        """One more member, which hears every event."""
        await self._nursery.start(self._stay_and_listen)
        self.audience.listeners += 1

    async def _stay_and_listen(self, task_status: trio.TaskStatus[None]) -> None:
        async with open_member(self._settings) as node, node.subscribe(TOPIC) as messages:
            task_status.started()
            async for message in messages:
                self.audience.hear(message.data)

    async def _stay(self, task_status: trio.TaskStatus[None]) -> None:
        async with open_member(self._settings) as node:
            if "B" in self._settings:
                self._callers.append(Caller(node, self._settings))
            task_status.started()
            await trio.sleep_forever()

    async def open_circuits(self, count: int) -> Answer:
        """So many more members, each with a standing circuit to the server."""
        before = len(self._callers)
        answer = await attach_many(self.attach, count)
        for caller in self._callers[before:]:
            stream = await caller.open()
            await stream.send_all(ECHO + b"?")
            await receive_exactly(stream, 1)
            self._standing.append(stream)
        return answer

    async def bulk(self, seconds: float) -> Answer:
        """Bulk on one new stream of every circuit at once."""
        callers = iter(self._callers)
        return await bulk(lambda: next(callers).open(), len(self._callers), seconds)


async def run_crowd(settings: Answer, ready: Serve) -> None:
    async with trio.open_nursery() as nursery:
        crowd = Crowd(settings, nursery)
        attach, listen = (partial(attach_many, one) for one in (crowd.attach, crowd.listen))
        commands: dict[str, Command] = {"attach": attach, "listen": listen, "heard": crowd.audience.heard}
        await ready({}, {**commands, "open_circuits": crowd.open_circuits, "bulk": crowd.bulk})


if __name__ == "__main__":
    logging.getLogger("agentmesh").setLevel(logging.ERROR)
    run_worker({"R": run_router, "B": run_server, "A": run_caller, "M": run_crowd})
