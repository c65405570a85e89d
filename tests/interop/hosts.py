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
from agentmesh.transports.websocket import WebSocketTransport
from agentmesh.types import Address, ProtocolId

ECHO = ProtocolId("/test/echo/1.0.0")
COUNT = ProtocolId("/test/count/1.0.0")
GATED = ProtocolId("/test/gated/1.0.0")
TCP = "/ip4/127.0.0.1/tcp/0"
WEBSOCKET = f"{TCP}/ws"
MIB = 1024 * 1024
TEN_MIB, HUNDRED_MIB = 10 * MIB, 100 * MIB
CHUNK = 64 * 1024


async def serve_echo(stream: Stream) -> None:
    async for data in stream:
        await stream.send_all(data)
    await stream.send_eof()


async def serve_count(stream: Stream) -> None:
    """Say nothing before the other's end has come; then how many bytes there were."""
    count = 0
    async for data in stream:
        count += len(data)
    await stream.send_all(str(count).encode())
    await stream.send_eof()


@asynccontextmanager
async def open_our_host(
    *protocols: Protocol, listen: str = TCP, transports: Sequence[Transport] = ()
) -> AsyncGenerator[Host]:
    """A host that speaks ping, identify, an echo, the same echo behind the gate, a count, and `protocols`."""
    spoken = [
        Protocol(ECHO, serve_echo),
        Protocol(COUNT, serve_count),
        Protocol(GATED, serve_echo, Admission.MEMBER),
        ping.protocol(),
        identify.protocol(),
        *protocols,
    ]
    async with open_host(
        identity=Identity.generate(),
        transports=[TcpTransport(), WebSocketTransport(), *transports],
        protocols=spoken,
        listen=[Address.parse(listen)],
    ) as host:
        yield host


async def count(stream: Stream, size: int) -> None:
    """Send `size` bytes and the end: only then does the peer say how many came."""
    async with stream:
        await stream.send_all(bytes(size))
        await stream.send_eof()
        answer = b"".join([data async for data in stream])
    assert int(answer) == size


async def echo(stream: Stream, size: int) -> None:
    """Send `size` random bytes and the end; exactly these must come back, and the end.

    The end waits for the first answer: js-libp2p forgets what comes, together with its end, while it negotiates.
    """
    sent, received, answered = hashlib.sha256(), hashlib.sha256(), trio.Event()

    async def send() -> None:
        for _ in range(0, size, CHUNK):
            data = os.urandom(CHUNK)
            sent.update(data)
            await stream.send_all(data)
        await answered.wait()
        await stream.send_eof()

    async with stream, trio.open_nursery() as nursery:
        nursery.start_soon(send)
        async for data in stream:
            received.update(data)
            answered.set()
    assert received.digest() == sent.digest()
