"""A connection over a simulated network, with both ends in hand."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from agentmesh.abc import ByteStream
from agentmesh.runtime.nursery import open_background
from agentmesh.testing import MemoryNetwork
from agentmesh.types import Address

ANY = Address.parse("/memory/0")
MB = 1_000_000


@asynccontextmanager
async def connected(network: MemoryNetwork) -> AsyncGenerator[tuple[ByteStream, ByteStream]]:
    """A connection dialled by host "a" to host "b"; the dialled end first."""
    accepted, arrivals = trio.open_memory_channel[ByteStream](0)

    async def hold(stream: ByteStream, source: Address | None) -> None:
        await accepted.send(stream)
        await trio.sleep_forever()

    async with network.transport("b").listen(ANY) as listener, open_background() as nursery:
        nursery.start_soon(listener.serve, hold)
        async with network.transport("a").dial(listener.addresses[0]) as dialed:
            yield dialed, await arrivals.receive()
