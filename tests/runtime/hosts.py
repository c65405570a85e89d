"""Hosts on a simulated network, and a protocol or two for them to speak."""

import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.abc import Admission, Stream
from agentmesh.identity import Identity
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.runtime.config import HostConfig
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.registry import Protocol
from agentmesh.testing.links import Conditions
from agentmesh.testing.network import MemoryNetwork
from agentmesh.types import Address, PeerId, ProtocolId

ECHO = ProtocolId("/test/echo")
ANYWHERE = Address.parse("/memory/0")


async def serve_echo(stream: Stream) -> None:
    """Say everything back."""
    async for data in stream:
        await stream.send_all(data)


@asynccontextmanager
async def open_named(
    network: MemoryNetwork,
    name: str,
    protocols: Sequence[Protocol] = (Protocol(ECHO, serve_echo),),
    *,
    listen: Sequence[Address] = (ANYWHERE,),
    config: HostConfig | None = None,
    identity: Identity | None = None,
) -> AsyncGenerator[Host]:
    """A host that is `name` on the network; credentials expire by the virtual clock."""
    async with open_host(
        identity=identity or Identity.generate(),
        transports=[network.transport(name)],
        protocols=protocols,
        listen=listen,
        config=config,
        admissions=AdmissionBook(trio.current_time),
    ) as host:
        yield host


@asynccontextmanager
async def open_two(
    protocols: Sequence[Protocol] = (Protocol(ECHO, serve_echo),),
    *,
    network: MemoryNetwork | None = None,
    alices: HostConfig | None = None,
    bobs: HostConfig | None = None,
) -> AsyncGenerator[tuple[Host, Host]]:
    """Alice, who has dialled Bob, and Bob, who speaks `protocols`."""
    network = network or MemoryNetwork()
    async with (
        open_named(network, "bob", protocols, config=bobs) as bob,
        open_named(network, "alice", config=alices) as alice,
    ):
        await alice.connect(bob.peer, bob.addresses)
        await wait_all_tasks_blocked()  # for Bob to have it too
        yield alice, bob


def admit(host: Host, peer: PeerId, level: Admission = Admission.MEMBER, seconds: float = math.inf) -> None:
    """Admit a peer for so long on the virtual clock."""
    host.admissions.admit(peer, level, trio.current_time() + seconds)


async def echo(host: Host, peer: PeerId, data: bytes = b"hello", protocol: ProtocolId = ECHO) -> bytes:
    """What comes back for `data` on a stream of its own."""
    stream = await host.open_stream(peer, protocol)
    received = bytearray()
    async with stream:
        await stream.send_all(data)
        await stream.send_eof()
        async for piece in stream:
            received += piece
    return bytes(received)


def dials(network: MemoryNetwork) -> int:
    """How many dials there were."""
    return sum(entry.what == "dial" for entry in network.trace)


def far(latency: float = 0.1) -> MemoryNetwork:
    """A network on which everything takes its time."""
    return MemoryNetwork(conditions=Conditions(latency=latency))


async def works(host: Host, other: Host) -> bool:
    """Whether a host can dial another and be served."""
    await host.connect(other.peer, other.addresses)
    return await echo(host, other.peer) == b"hello"
