"""A router, a process of an agent with its target beside it, and a client of the agent's: a worker."""

import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import trio

from agentmesh.agent import AgentProcess, AgentProcessConfig, open_agent_as
from agentmesh.credentials import ROLE_ROUTER
from agentmesh.errors import NotConnectedError
from agentmesh.node import Node, NodeConfig, run_node_as
from agentmesh.pool.agent.access import AccessPolicy
from agentmesh.pool.agent.config import AgentConfig, ConnectionsConfig
from agentmesh.pool.agent.scaling import Record
from agentmesh.pool.agent.targets import Connector
from agentmesh.router import RouterConfig, open_router_as
from agentmesh.router.config import AgentsConfig
from agentmesh.runtime.nursery import open_background
from agentmesh.types import Address
from benchmarks.commands import Answer, Command, Serve, run_worker
from benchmarks.stacks.plane import ENROLLMENT, enter
from benchmarks.summary import percentile

AGENT = "devbox"
LOCAL = AccessPolicy.read([{"networks": ["127.0.0.0/8"]}])
ECHO, POUR = b"e", b"p"
PIECE = bytes(64 * 1024)
SETTLE_TIMEOUT = 60.0  # seconds until an agent has the connections that it is to have at least
LOOK_INTERVAL = 0.05

Open = Callable[[], Awaitable[trio.abc.Stream]]


async def serve_target(stream: trio.abc.Stream) -> None:
    """Say everything again, or send without end, as the first byte asks."""
    try:
        data = bytes(await stream.receive_some())
        while data[:1] == POUR:
            await stream.send_all(PIECE)
        while data:
            await stream.send_all(data)
            data = bytes(await stream.receive_some())
    except trio.BrokenResourceError:
        return  # the client has had enough


async def run_router(settings: Answer, ready: Serve) -> None:
    listen = tuple(Address.parse(f"/ip4/{host}/tcp/0") for host in settings["hosts"])
    membership = await enter(settings["key"], *settings["others"], role=ROLE_ROUTER)
    config = RouterConfig(enrollment=ENROLLMENT, listen=listen, agents=AgentsConfig(registry=settings["registry"]))
    async with open_router_as(membership, config) as router:
        with trio.fail_after(SETTLE_TIMEOUT):
            while len(router.federation.peers) < len(settings["others"]):  # noqa: ASYNC110 - seen from outside
                await trio.sleep(LOOK_INTERVAL)
        await ready({"addresses": [str(address) for address in router.addresses]})


class Agent:
    """What can be asked of an agent's process."""

    def __init__(self, process: AgentProcess) -> None:
        self._process = process

    async def settle(self, count: int) -> Answer:
        """Wait until it has so many connections, and lets none go."""
        with trio.fail_after(SETTLE_TIMEOUT):
            while not len(self._process.connections) == len(self._process.pool.links) == count:  # noqa: ASYNC110 - seen from outside
                await trio.sleep(LOOK_INTERVAL)
        return {}

    async def look(self) -> Answer:
        """How many connections it has, and what it has decided on that so far."""
        await trio.lowlevel.checkpoint()
        scaler = self._process.pool.controller.scaler
        return {"connections": len(self._process.connections), "records": list(map(_shown, scaler.records))}


def _shown(record: Record) -> Answer:
    reports = [seen.report for seen in record.seen]
    return {
        "at": record.at,
        "decision": record.decision.value,
        "reason": record.reason.value,
        "connections": record.connections,
        "queue_wait": max((report.queue_wait for report in reports), default=0.0),
        "queue_pressure": max((report.queue_pressure for report in reports), default=0.0),
        "streams": sum(report.active_streams for report in reports),
    }


async def run_agent(settings: Answer, ready: Serve) -> None:
    membership = await enter(settings["key"], settings["router"], labels={"agent": AGENT})
    config = AgentProcessConfig(
        enrollment=ENROLLMENT,
        agent=AgentConfig(id=AGENT, instance_id="benchmark", connections=ConnectionsConfig(**settings["connections"])),
        state_dir=Path(settings["folder"]),
    )
    async with open_background() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve_target, listeners)
        async with open_agent_as(membership, config, connector=Connector(LOCAL)) as process:
            agent = Agent(process)
            port = listeners[0].socket.getsockname()[1]
            await ready({"port": port, "pid": os.getpid()}, {"settle": agent.settle, "look": agent.look})


class Client:
    """Opens streams to the target, and measures."""

    def __init__(self, open_stream: Open, nursery: trio.Nursery) -> None:
        self._open = open_stream
        self._nursery = nursery
        self._poured = 0

    async def opens(self, seconds: float) -> Answer:
        """One stream after another: how long until it is open, and until a byte has come back on it."""
        opens, trips = list[float](), list[float]()
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            async with await self._open() as stream:
                opened = time.perf_counter()
                await stream.send_all(ECHO)
                await stream.receive_some(1)
                opens.append(opened - began)
                trips.append(time.perf_counter() - opened)
        return {**_times("open", opens), **_times("first_byte", trips), "count": len(opens)}

    async def round_trips(self, seconds: float) -> Answer:
        """A byte there and back, again and again on one stream."""
        trips = list[float]()
        async with await self._open() as stream:
            until = time.perf_counter() + seconds
            while (began := time.perf_counter()) < until:
                await stream.send_all(ECHO)
                await stream.receive_some(1)
                trips.append(time.perf_counter() - began)
        return _times("round_trip", trips)

    async def rush(self, seconds: float, at_once: int) -> Answer:
        """Streams opened, used for a byte and closed, so many at once."""
        done, until = list[int](), time.perf_counter() + seconds

        async def go_on() -> None:
            while time.perf_counter() < until:
                async with await self._open() as stream:
                    await stream.send_all(ECHO)
                    await stream.receive_some(1)
                done.append(1)

        began = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for _ in range(at_once):
                nursery.start_soon(go_on)
        return {"rushed": len(done), "opens_per_second": len(done) / (time.perf_counter() - began)}

    async def pour(self, streams: int, size: int = 0) -> Answer:
        """Have the target send on so many streams at once, from now on.

        Args:
            size: bytes after which a stream is closed and another one opened; 0: never.
        """
        for _ in range(streams):
            self._nursery.start_soon(self._pour, size or sys.maxsize)
        await trio.lowlevel.checkpoint()
        return {}

    async def poured(self) -> Answer:
        """How many bytes have come so far."""
        await trio.lowlevel.checkpoint()
        return {"bytes": self._poured, "at": time.perf_counter()}

    async def _pour(self, size: int) -> None:
        while True:
            async with await self._open() as stream:
                await stream.send_all(POUR)
                taken = 0
                while taken < size and (data := await stream.receive_some()):
                    taken += len(data)
                    self._poured += len(data)


def _times(name: str, times: Sequence[float]) -> Answer:
    return {f"{name}_p50": percentile(times, 50), f"{name}_p99": percentile(times, 99)}


async def run_client(settings: Answer, ready: Serve) -> None:
    port = settings["port"]
    async with trio.open_nursery() as nursery:
        if "router" not in settings:
            await _serve_client(partial(trio.open_tcp_stream, "127.0.0.1", port), nursery, ready)
            return
        membership = await enter(settings["key"], settings["router"])
        async with run_node_as(membership, NodeConfig(enrollment=ENROLLMENT, routers=1)) as node:
            if not node.routers:
                raise NotConnectedError("the router did not take this member in time")
            await _serve_client(partial(_open_tunnel, node, port), nursery, ready)


async def _open_tunnel(node: Node, port: int) -> trio.abc.Stream:
    return await node.open_tunnel(AGENT, f"tcp://127.0.0.1:{port}")


async def _serve_client(open_stream: Open, nursery: trio.Nursery, ready: Serve) -> None:
    client = Client(open_stream, nursery)
    commands: dict[str, Command] = {
        "opens": client.opens,
        "round_trips": client.round_trips,
        "rush": client.rush,
        "pour": client.pour,
        "poured": client.poured,
    }
    await ready({"pid": os.getpid()}, commands)


if __name__ == "__main__":
    logging.getLogger("agentmesh").setLevel(logging.ERROR)
    run_worker({"router": run_router, "agent": run_agent, "client": run_client})
