"""How a host of the simulated network dials and listens."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from agentmesh.abc import ByteStream, Listener, StreamHandler, Transport
from agentmesh.errors import AddressError
from agentmesh.testing.links import SimulatedHost
from agentmesh.transports.memory import MemoryListener, memory_number
from agentmesh.types import Address

if TYPE_CHECKING:
    from agentmesh.testing.network import MemoryNetwork


class NetworkTransport(Transport):
    """How one host of a `MemoryNetwork` dials and listens; made by `MemoryNetwork.transport`."""

    def __init__(self, network: "MemoryNetwork", host: SimulatedHost) -> None:
        self._network = network
        self._host = host

    def can_dial(self, address: Address) -> bool:
        return bool(memory_number(address))

    def can_listen(self, address: Address) -> bool:
        return memory_number(address) is not None

    @asynccontextmanager
    async def dial(self, address: Address) -> AsyncGenerator[ByteStream]:
        number = memory_number(address)
        if not number:
            raise AddressError(f"not an address to dial in memory: {address}")
        async with self._network.dial(self._host, number) as stream:
            yield stream

    @asynccontextmanager
    async def listen(self, address: Address) -> AsyncGenerator[Listener]:
        number = memory_number(address)
        if number is None:
            raise AddressError(f"not an address to listen on in memory: {address}")
        await trio.lowlevel.checkpoint()
        listener = self._network.listen(self._host, number)
        try:
            yield NetworkListener(listener, self._host)
        finally:
            listener.close()


class NetworkListener(Listener):
    """A number that a host listens on; while the host is frozen, nothing is handled."""

    def __init__(self, listener: MemoryListener, host: SimulatedHost) -> None:
        self._listener = listener
        self._host = host

    @property
    def addresses(self) -> Sequence[Address]:
        return self._listener.addresses

    async def serve(self, handler: StreamHandler) -> None:
        async def handle(stream: ByteStream, source: Address | None) -> None:
            await self._host.wait_thawed()
            await handler(stream, source)

        await self._listener.serve(handle)
