"""An agent and a router over real sockets, TCP and WebSocket, and targets that are real servers."""

import hashlib
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from agentmesh.abc import Admission, Transport
from agentmesh.identity import Identity
from agentmesh.pool.agent.access import AccessPolicy
from agentmesh.pool.agent.agent import AgentPool, AgentSettings
from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.pool.agent.instance import Instance
from agentmesh.pool.agent.targets import Connector
from agentmesh.pool.router.attached import Bearer, attached_to
from agentmesh.pool.router.claims import ConnectionKey
from agentmesh.pool.router.connection import Connection, State
from agentmesh.pool.router.leased import PooledStream
from agentmesh.pool.router.service import PoolService
from agentmesh.pool.router.table import PoolTable
from agentmesh.protocols.pool import Code, Open, OpenResult, Stage
from agentmesh.runtime.host import open_host
from agentmesh.runtime.session import MuxSession
from agentmesh.transports.tcp import TcpTransport
from agentmesh.transports.websocket import WebSocketTransport
from agentmesh.types import Address

PATIENCE = 60  # seconds
LOCAL = AccessPolicy.read([{"networks": ["127.0.0.0/8"]}])
CONTENT = os.urandom(4 * 1024 * 1024)

WAYS: list[tuple[Callable[[], Transport], str]] = [
    (TcpTransport, "/ip4/127.0.0.1/tcp/0"),
    (WebSocketTransport, "/ip4/127.0.0.1/tcp/0/ws"),
]


@asynccontextmanager
async def pool_over(transport: Callable[[], Transport], address: str) -> AsyncGenerator[PoolService]:
    """A router, and an agent with three connections to it."""
    identity = Identity.generate()
    service = PoolService(PoolTable("n1"), lambda _: Bearer("agent", "t"))
    settings = AgentSettings(
        agent_id="agent", instance=Instance("i1", "b1", is_kept=True), connections=ConnectionsConfig(min=3, max=3)
    )
    async with open_host(
        identity=Identity.generate(),
        transports=[transport()],
        protocols=[service.protocol(Admission.ANYONE)],
        listen=[Address.parse(address)],
    ) as router:

        async def dial() -> MuxSession:
            return await agent.connect_anew(router.peer, router.addresses)

        pool = AgentPool(settings, dial, Connector(LOCAL))
        async with (
            open_host(
                identity=identity, transports=[transport()], protocols=[pool.protocol(Admission.ANYONE)]
            ) as agent,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(pool.run)
            await wait_until(lambda: {one.connection_id for one in open_ones(service)} == settled(pool))
            yield service
            nursery.cancel_scope.cancel()


def open_ones(service: PoolService) -> list[Connection]:
    return [one for pool in service.table for one in pool.connections if one.state is State.OPEN]


def settled(pool: AgentPool) -> set[str] | None:
    """The connections of an agent that has all of them; None while it looks for more, or for another router."""
    active = set(pool.controller.active)
    return active if len(active) == pool.controller.count == 3 else None


async def wait_until(holds: Callable[[], bool]) -> None:
    while True:
        if holds():
            return
        await trio.sleep(0.01)


@asynccontextmanager
async def server(broken: list[trio.BrokenResourceError]) -> AsyncGenerator[int]:
    """A server on this machine; its port. It reads each request to its end, then answers."""

    async def answer(stream: trio.SocketStream) -> None:
        received = hashlib.sha256()
        try:
            while data := await stream.receive_some():
                received.update(bytes(data))
            await stream.send_all(received.digest() + CONTENT)
        except trio.BrokenResourceError as exc:
            broken.append(exc)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, answer, listeners)
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def open_to(service: PoolService, port: int) -> PooledStream:
    stream = await service.opener.open("agent", Open("", "tcp", "localhost", port))
    assert isinstance(stream, PooledStream), stream
    return stream


async def open_on(service: PoolService, key: ConnectionKey, port: int) -> PooledStream:
    """On that very connection: which one is chosen depends on how fast this machine is."""
    stream = await service.opener.open_on(key, Open("", "tcp", "localhost", port))
    assert isinstance(stream, PooledStream), stream
    return stream


async def fetch(stream: PooledStream) -> bytes:
    """Send a request, end it, and read the answer to its end: half-close, both ways."""
    async with stream:
        await stream.send_all(CONTENT)
        await stream.send_eof()
        answer = bytearray()
        while data := await stream.receive_some():
            answer += data
    return bytes(answer)


@pytest.mark.parametrize(("transport", "address"), WAYS)
async def test_what_streams_carry_survives_the_loss_of_other_connections(
    transport: Callable[[], Transport], address: str
) -> None:
    expected, broken = hashlib.sha256(CONTENT).digest() + CONTENT, list[trio.BrokenResourceError]()
    with trio.fail_after(PATIENCE):
        async with server(broken) as port, pool_over(transport, address) as service:
            victim, *streams = [await open_on(service, one.key, port) for one in open_ones(service)]
            answers: list[bytes] = []

            async def fetch_one(stream: PooledStream) -> None:
                answers.append(await fetch(stream))

            async with trio.open_nursery() as nursery:
                for stream in streams:
                    nursery.start_soon(fetch_one, stream)
                await victim.send_all(b"half of a request")
                attached_to(victim.lease.connection).session.abort("the cable")
                with pytest.raises(trio.BrokenResourceError):
                    await victim.receive_some()
            assert answers == [expected] * 2
            await wait_until(lambda: len(open_ones(service)) == 3)
            await wait_until(lambda: len(broken) > 0)  # the target has not taken half of a request for a whole one
            assert await fetch(await open_to(service, port)) == expected


@pytest.mark.parametrize(("transport", "address"), WAYS)
async def test_a_port_on_which_nobody_listens(transport: Callable[[], Transport], address: str) -> None:
    with trio.fail_after(PATIENCE):
        async with server([]) as port:
            pass
        async with pool_over(transport, address) as service:
            result = await service.opener.open("agent", Open("", "tcp", "127.0.0.1", port))
            assert result == OpenResult(Stage.CONNECT, Code.CONNECTION_REFUSED)
            forbidden = await service.opener.open("agent", Open("", "tcp", "169.254.169.254", 80))
            assert forbidden == OpenResult(Stage.POLICY, Code.FORBIDDEN)
