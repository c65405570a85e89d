"""Routers that drain at SIGTERM, as their program does, and members that hold some of them and call each other all the
time: a worker.
"""

import logging
import random
import signal
import time
from collections.abc import Sequence
from functools import partial

import attrs
import trio

from agentmesh.abc import StreamLimits
from agentmesh.errors import MeshError
from agentmesh.node import Node, NodeConfig, run_node_as
from agentmesh.router import RouterConfig, open_router_as
from agentmesh.runtime.nursery import open_background
from agentmesh.runtime.registry import Protocol
from agentmesh.types import PeerId
from benchmarks.commands import Answer, Serve, run_worker
from benchmarks.crowd import attach_many
from benchmarks.holding import Holding
from benchmarks.stacks.mesh import BENCH, LOOPBACK, MAX_STREAMS
from benchmarks.stacks.plane import ENROLLMENT, enter
from benchmarks.traffic import ECHO, StreamEndedError, receive_exactly, serve

ATTACH_TIMEOUT = 30.0  # seconds until a member holds as many routers as it wants
CALL_TIMEOUT = 10.0  # seconds
CALL_ERRORS = (MeshError, StreamEndedError, trio.BrokenResourceError, trio.TooSlowError)


async def run_router(settings: Answer, ready: Serve) -> None:
    membership = await enter(settings["key"])
    config = RouterConfig(enrollment=ENROLLMENT, listen=(LOOPBACK,))
    async with open_router_as(membership, config) as router, open_background() as nursery:
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            nursery.start_soon(partial(ready, {"address": str(router.addresses[0])}))
            await anext(aiter(signals))


@attrs.frozen
class Member:
    """One of the members of this process."""

    node: Node
    holding: Holding


@attrs.define
class Calls:
    """What became of the calls of this process's members."""

    made: int = 0
    failed: int = 0
    slowest: float = 0.0  # seconds, of those that succeeded
    why: str = ""  # the first failed

    def failure(self, exc: Exception) -> None:
        self.failed += 1
        self.why = self.why or f"{type(exc).__name__}: {exc}"


class Crowd:
    """The members of this process."""

    def __init__(self, settings: Answer, nursery: trio.Nursery) -> None:
        self._settings = settings
        self._nursery = nursery
        self._members: list[Member] = []
        self._calls = Calls()

    async def attach(self, count: int) -> Answer:
        """Have so many members attach to all the routers that they want; their peer IDs."""
        answer = await attach_many(self._attach_one, count)
        return {**answer, "peers": [str(member.node.peer) for member in self._members]}

    async def call(self, partners: Sequence[str], interval: float) -> Answer:
        """Have each member call its partner from now on, once an interval, each call a stream of its own."""
        for member, partner in zip(self._members, partners, strict=True):
            self._nursery.start_soon(self._keep_calling, member.node, PeerId.parse(partner), interval)
        await trio.lowlevel.checkpoint()
        return {}

    async def report(self, router: str, since: float) -> Answer:
        """How long those who held a router took to hold as many as before, and what became of all calls so far."""
        await trio.lowlevel.checkpoint()
        concerned = [member.holding for member in self._members if member.holding.held(router, since)]
        whole = [holding.whole_again(router, since) for holding in concerned]
        took = [at - since for at in whole if at is not None]
        return {"took": took, "left": len(concerned) - len(took), "calls": attrs.asdict(self._calls)}

    async def _attach_one(self) -> None:
        await self._nursery.start(self._stay)

    async def _stay(self, task_status: trio.TaskStatus[None]) -> None:
        membership = await enter(self._settings["key"], *self._settings["routers"])
        config = NodeConfig(enrollment=ENROLLMENT, routers=self._settings["wanted"])
        protocol = Protocol(BENCH, serve, limits=StreamLimits(MAX_STREAMS))
        async with run_node_as(membership, config, protocols=[protocol]) as node:
            member = Member(node, Holding(config.routers))
            whole = trio.Event()

            def look() -> None:
                member.holding.changed(frozenset(map(str, node.routers)), time.monotonic())
                if member.holding.is_whole:
                    whole.set()

            node.attachments.on_change(look)
            look()
            with trio.fail_after(ATTACH_TIMEOUT):
                await whole.wait()
            self._members.append(member)
            task_status.started()
            await trio.sleep_forever()

    async def _keep_calling(self, node: Node, partner: PeerId, interval: float) -> None:
        await trio.sleep(random.random() * interval)
        while True:
            began = time.monotonic()
            self._calls.made += 1
            try:
                with trio.fail_after(CALL_TIMEOUT):
                    await _call(node, partner)
            except CALL_ERRORS as exc:
                self._calls.failure(exc)
            else:
                self._calls.slowest = max(self._calls.slowest, time.monotonic() - began)
            await trio.sleep(interval)


async def _call(node: Node, partner: PeerId) -> None:
    async with await node.open_stream(partner, BENCH) as stream:
        await stream.send_all(ECHO + b"?")
        await receive_exactly(stream, 1)


async def run_members(settings: Answer, ready: Serve) -> None:
    async with trio.open_nursery() as nursery:
        crowd = Crowd(settings, nursery)
        await ready({}, {"attach": crowd.attach, "call": crowd.call, "report": crowd.report})


if __name__ == "__main__":
    logging.getLogger("agentmesh").setLevel(logging.ERROR)
    run_worker({"router": run_router, "members": run_members})
