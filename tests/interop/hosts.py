"""Our side of the tests with real peers."""

import hashlib
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import trio

from agentmesh.abc import Admission, Stream, Transport
from agentmesh.identity import Identity
from agentmesh.protocols import identify, ping
from agentmesh.runtime.host import Host, open_host
from agentmesh.runtime.registry import Protocol
from agentmesh.transports.tcp import TcpTransport
from agentmesh.types import Address, ProtocolId

ECHO = ProtocolId("/test/echo/1.0.0")
GATED = ProtocolId("/test/gated/1.0.0")
LOOPBACK = Address.parse("/ip4/127.0.0.1/tcp/0")
TEN_MIB = 10 * 1024 * 1024
CHUNK = 64 * 1024


async def serve_echo(stream: Stream) -> None:
    async for data in stream:
        await stream.send_all(data)
    await stream.send_eof()


@asynccontextmanager
async def open_our_host(*protocols: Protocol, transports: Sequence[Transport] = ()) -> AsyncGenerator[Host]:
    """A host on TCP that speaks ping, identify, an echo, the same echo behind the gate, and `protocols`."""
    spoken = [
        Protocol(ECHO, serve_echo),
        Protocol(GATED, serve_echo, Admission.MEMBER),
        ping.protocol(),
        identify.protocol(),
        *protocols,
    ]
    async with open_host(
        identity=Identity.generate(), transports=[TcpTransport(), *transports], protocols=spoken, listen=[LOOPBACK]
    ) as host:
        yield host


async def echo(stream: Stream, size: int) -> None:
    """Send `size` random bytes and the end; exactly these must come back, and the end."""
    sent, received = hashlib.sha256(), hashlib.sha256()

    async def send() -> None:
        for _ in range(0, size, CHUNK):
            data = os.urandom(CHUNK)
            sent.update(data)
            await stream.send_all(data)
        await stream.send_eof()

    async with stream, trio.open_nursery() as nursery:
        nursery.start_soon(send)
        async for data in stream:
            received.update(data)
    assert received.digest() == sent.digest()
