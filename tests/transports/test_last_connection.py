"""A listener that waits for the next connection does not hold on to the last one."""

import gc
import weakref

import pytest
import trio

from agentmesh.abc import ByteStream, Transport
from agentmesh.runtime.nursery import open_background
from agentmesh.transports.h2 import H2Transport
from agentmesh.transports.memory import MemoryHub, MemoryTransport
from agentmesh.transports.tcp import TcpTransport
from agentmesh.transports.websocket import WebSocketTransport
from agentmesh.types import Address


@pytest.mark.parametrize(
    ("transport", "address"),
    [
        (MemoryTransport(MemoryHub()), "/memory/0"),
        (TcpTransport(), "/ip4/127.0.0.1/tcp/0"),
        (WebSocketTransport(), "/ip4/127.0.0.1/tcp/0/ws"),
        (H2Transport(), "/ip4/127.0.0.1/tcp/0/http"),
    ],
    ids=["memory", "tcp", "websocket", "h2"],
)
async def test_the_last_connection_is_forgotten_before_the_next_one_comes(transport: Transport, address: str) -> None:
    accepted: list[weakref.ref[ByteStream]] = []

    async def handle(stream: ByteStream, source: Address | None) -> None:
        accepted.append(weakref.ref(stream))
        while await stream.receive_some():
            pass

    async with transport.listen(Address.parse(address)) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, handle)
        async with transport.dial(listener.addresses[0]) as stream:
            await stream.send_all(b"x")
            del stream
        with trio.fail_after(10):
            while not accepted or accepted[0]() is not None:  # noqa: ASYNC110 - nothing tells when an object is gone
                await trio.sleep(0.01)
                gc.collect()
