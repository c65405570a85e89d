"""Two processes of one agent, three connections each, two routers: what is lost is what was on it, and nothing else."""

import hashlib
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

import attrs
import httpx
import pytest
import trio

from agentmesh.runtime.nursery import open_background
from tests.programs.balancer import Balancer, open_balancer
from tests.programs.mesh import OPEN_POLICY, create_token
from tests.programs.programs import PATIENCE, Machine, Running

AGENT = "devbox"
CONNECTIONS = 3
STREAMS = 18
MIB = 1024 * 1024
GIB_IN_MIB = 1024
LONG = 120.0  # seconds; far more than it takes


@attrs.define
class Target:
    """What the agent reaches: it says everything again, or sends a gibibyte, half of it when it is told to.

    Attributes:
        sent: the hash of what it has sent.
        second_half: to be set.
    """

    port: int = 0
    second_half: trio.Event = attrs.Factory(trio.Event)
    sent: Any = attrs.Factory(hashlib.sha256)

    async def serve(self, stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            asked = await stream.receive_some()
            if asked == b"download":
                await self._send(stream)
                return
            while asked:
                await stream.send_all(asked)
                asked = await stream.receive_some()

    async def _send(self, stream: trio.SocketStream) -> None:
        for number in range(GIB_IN_MIB):
            if number == GIB_IN_MIB // 2:
                await self.second_half.wait()
            block = number.to_bytes(8, "big") * (MIB // 8)
            self.sent.update(block)
            await stream.send_all(block)
        await stream.send_eof()


@attrs.define
class Streams:
    """Streams through the agent, each of which says something from time to time until it breaks."""

    port: int
    alive: set[int] = attrs.Factory(set[int])
    begun: int = 0

    async def keep(self, task_status: trio.TaskStatus[None]) -> None:
        number, self.begun = self.begun, self.begun + 1
        with suppress(trio.BrokenResourceError, EOFError):
            async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
                await _echo(stream, number)
                self.alive.add(number)
                task_status.started()
                while True:
                    await trio.sleep(0.05)
                    await _echo(stream, number)
        self.alive.discard(number)


async def _echo(stream: trio.SocketStream, number: int) -> None:
    text, said = b"%08d" % number, b""
    await stream.send_all(text)
    while len(said) < len(text):
        got = await stream.receive_some(len(text) - len(said))
        if not got:
            raise EOFError
        said += bytes(got)
    assert said == text


@attrs.define
class World:
    """A control plane, routers behind a balancer, processes of an agent, and a port that leads to a target."""

    machine: Machine
    stack: AsyncExitStack
    join: tuple[str, ...]
    tokens: dict[str, str]
    target: Target
    balancer: Balancer
    nursery: trio.Nursery
    running: dict[str, Running] = attrs.Factory(dict[str, Running])
    admin: httpx.AsyncClient = attrs.field(init=False)
    node_ids: dict[str, str] = attrs.Factory(dict[str, str])
    offline: int = 0

    async def start(self, name: str, *arguments: str) -> Running:
        one = await self.stack.enter_async_context(self.machine.running(*arguments))
        self.running[name] = one
        return one

    async def router(self, name: str) -> int:
        """Start a router. Returns its port."""
        one = await self.start(
            name,
            *("router", *self.join, self.tokens["router"], "--data-dir", name),
            *("--listen", "/ip4/127.0.0.1/tcp/0", "--admin-addr", "127.0.0.1:0"),
            *("--agent-registry", "agents.db", "--local-spill-score", "2", "--agent-lease-ttl", "9s"),
        )
        self.node_ids[name] = (await one.said(r" serving peer=(\S+)"))[1]
        return int((await one.said(r" serving .*addresses=\"?/ip4/127.0.0.1/tcp/(\d+)"))[1])

    async def agent(self, name: str) -> None:
        one = await self.start(
            name,
            *("agent", "run", *self.join, self.tokens["node"], "--data-dir", name, "--agent-id", AGENT),
            *("--server-url", f"tcp://127.0.0.1:{self.balancer.port}", "--instance-id", name),
            *("--connections-min", str(CONNECTIONS), "--connections-max", str(CONNECTIONS)),
            *("--allow", "tcp://127.0.0.1/32:1-65535"),
        )
        await one.said(" connected ", times=CONNECTIONS)

    async def forward(self) -> int:
        """Start what leads to the target. Returns its port."""
        one = await self.start(
            "forward",
            *("forward", AGENT, f"tcp://127.0.0.1:{self.target.port}", *self.join, self.tokens["node"]),
            *("--listen", "127.0.0.1:0", "--data-dir", "forward", "--routers", "1"),
        )
        await one.said(" forwarding ")
        return int((await one.said(r" listening .*address=127.0.0.1:(\d+)"))[1])

    async def view(self) -> dict[str, Any]:
        """The agent as the first router sees it."""
        answer = await self.admin.get(f"/api/v1/agents/{AGENT}")
        assert answer.status_code == 200, answer.text
        view: dict[str, Any] = answer.json()
        return view

    async def watch(self) -> None:
        """Look again and again whether the agent is there."""
        while True:
            self.offline += not (await self.view())["online"]
            await trio.sleep(0.05)

    async def settled(self, connections: int, streams: int) -> list[dict[str, Any]]:
        """The connections, when there are so many with so many streams: the other router tells of its own late."""
        with trio.fail_after(LONG):
            while True:
                found: list[dict[str, Any]] = (await self.view())["connections"]
                if len(found) == connections and sum(one["activeStreams"] for one in found) == streams:
                    return found
                await trio.sleep(0.1)


@asynccontextmanager
async def open_world(machine: Machine) -> AsyncGenerator[World]:
    """One router and one process of the agent; more are to be started."""
    async with open_background() as nursery, AsyncExitStack() as stack:
        bind = ("--bind-address", "127.0.0.1:0", "--auto-approve-enrollment", "--policy-file", str(OPEN_POLICY))
        control_plane = await stack.enter_async_context(machine.running("control-plane", *bind))
        url = (await control_plane.said(r" serving .*url=(\S+)"))[1]
        tokens = {role: str(await create_token(machine, role)) for role in ("router", "node")}
        target = Target()
        (listener,) = await nursery.start(partial(trio.serve_tcp, target.serve, 0, host="127.0.0.1"))
        target.port = listener.socket.getsockname()[1]
        join = ("--control-plane", url, "--bootstrap-token-path")
        balancer = await stack.enter_async_context(open_balancer())
        world = World(machine, stack, join, tokens, target, balancer, nursery)
        balancer.ports = [await world.router("r1")]
        await world.agent("i1")
        text = (await world.running["r1"].said(r" admin .*url=(\S+)"))[1]
        token = (machine.folder / "r1" / "admin-token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        world.admin = await stack.enter_async_context(httpx.AsyncClient(base_url=text, headers=headers))
        yield world
    await machine.none_left()


@attrs.define
class Download:
    """What was downloaded, when it is whole."""

    sum: str = ""
    whole: trio.Event = attrs.Factory(trio.Event)

    async def get(self) -> str:
        await self.whole.wait()
        return self.sum


async def download(port: int, task_status: trio.TaskStatus[Download]) -> None:
    found, received = Download(), hashlib.sha256()
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(b"download")
        received.update(await stream.receive_some())
        task_status.started(found)
        while data := await stream.receive_some(MIB):
            received.update(data)
    found.sum = received.hexdigest()
    found.whole.set()


async def fill(world: World, streams: Streams, nursery: trio.Nursery) -> list[dict[str, Any]]:
    """Have so many streams again. Returns the connections with what is on each."""
    with trio.fail_after(LONG):
        while len(streams.alive) < STREAMS:
            await nursery.start(streams.keep)
    return await world.settled(2 * CONNECTIONS, STREAMS + 1)


async def lost(streams: Streams, gone: list[dict[str, Any]]) -> None:
    """The streams that were on these connections are lost, and no others."""
    left = STREAMS - sum(one["activeStreams"] for one in gone)
    with trio.fail_after(PATIENCE):
        while len(streams.alive) > left:  # noqa: ASYNC110 - only looking tells
            await trio.sleep(0.05)
    await trio.sleep(1.0)
    assert len(streams.alive) == left


async def lose_a_connection(world: World, streams: Streams, nursery: trio.Nursery) -> None:
    """The busiest of those that carry no download is cut."""
    before = await fill(world, streams, nursery)
    max((one for one in world.balancer.carried if one.size < 100 * MIB), key=lambda one: one.size).cut()
    with trio.fail_after(PATIENCE):
        while True:
            now = {one["connectionId"] for one in (await world.view())["connections"]}
            if gone := [one for one in before if one["connectionId"] not in now]:
                break
    assert len(gone) == 1
    assert gone[0]["activeStreams"]
    await lost(streams, gone)


async def lose_a_router(world: World, streams: Streams, nursery: trio.Nursery) -> None:
    before = await fill(world, streams, nursery)
    gone = [one for one in before if one["serverNodeId"] == world.node_ids["r2"]]
    assert sum(one["activeStreams"] for one in gone)
    world.balancer.ports = world.balancer.ports[-1:]
    world.running["r2"].process.send_signal(signal.SIGKILL)
    await lost(streams, gone)


async def lose_a_process(world: World, streams: Streams, nursery: trio.Nursery) -> None:
    before = await fill(world, streams, nursery)
    gone = [one for one in before if one["instanceId"] == "i2"]
    assert sum(one["activeStreams"] for one in gone)
    world.running["i2"].process.send_signal(signal.SIGKILL)
    await lost(streams, gone)


@pytest.mark.timeout(300)
async def test_what_is_lost_is_what_was_on_it(machine: Machine) -> None:
    async with open_world(machine) as world:
        port = await world.forward()
        async with trio.open_nursery() as nursery:
            downloaded = await nursery.start(download, port)
            [pinned] = [one for one in await world.settled(CONNECTIONS, 1) if one["activeStreams"]]
            world.balancer.ports = [await world.router("r2"), *world.balancer.ports]
            await world.agent("i2")
            nursery.start_soon(world.watch)
            streams = Streams(port)
            await lose_a_connection(world, streams, nursery)
            await lose_a_router(world, streams, nursery)
            await lose_a_process(world, streams, nursery)
            world.target.second_half.set()
            with trio.fail_after(LONG):
                received = await downloaded.get()
            assert received == world.target.sent.hexdigest()
            left = await world.settled(CONNECTIONS, len(streams.alive))
            assert pinned["connectionId"] in [one["connectionId"] for one in left]
            assert world.offline == 0
            nursery.cancel_scope.cancel()
