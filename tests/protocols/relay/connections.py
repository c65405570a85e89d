"""Connections of circuits in memory, where time is virtual: what dials them, and what moves bytes between them."""

import math
from collections.abc import Callable
from contextlib import AsyncExitStack

import trio

from agentmesh.abc import ByteStream, DataDialer, DataStream, Moved, Splicer, Transport
from agentmesh.errors import AddressError
from agentmesh.transports.pipes import PipeStream
from agentmesh.types import Address

CHUNK_BYTES = 64 * 1024


class MemoryData(DataStream):
    """A connection of the simulated network."""

    def __init__(self, stream: PipeStream) -> None:
        self._stream = stream

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    def send_nowait(self, data: bytes | memoryview) -> int:
        return 0

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return await self._stream.receive_some(max_bytes)

    async def receive_into(self, buffer: memoryview) -> int:
        data = await self._stream.receive_some(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def close_now(self) -> None:
        self._stream.close()


class MemoryDialer(DataDialer):
    """Dials as a host of the simulated network.

    Args:
        transport: the host's.
        stack: whose end is later than that of all connections.
    Attributes:
        dialed: the addresses, in order.
    """

    def __init__(self, transport: Transport, stack: AsyncExitStack) -> None:
        self.dialed: list[Address] = []
        self._transport = transport
        self._stack = stack

    def can_carry(self, address: Address) -> bool:
        return self._transport.can_dial(address)

    async def dial_data(self, address: Address) -> DataStream:
        if not self.can_carry(address):
            raise AddressError(f"not in memory: {address}")
        self.dialed.append(address)
        stream = await self._stack.enter_async_context(self._transport.dial(address))
        assert isinstance(stream, PipeStream)
        return MemoryData(stream)


class MemorySplicer(Splicer):
    """Moves what comes, a piece at a time.

    Attributes:
        record: gets all of it, if it is set.
    """

    method = "memory"

    def __init__(self) -> None:
        self.record: bytearray | None = None

    def take(self, stream: ByteStream) -> trio.abc.HalfCloseableStream | None:
        return stream if isinstance(stream, PipeStream) else None

    async def move(
        self,
        source: trio.abc.HalfCloseableStream,
        sink: trio.abc.HalfCloseableStream,
        max_bytes: int | None,
        count: Callable[[int], None],
    ) -> Moved:
        left = math.inf if max_bytes is None else max_bytes
        while True:
            try:
                data = await source.receive_some(int(min(left, CHUNK_BYTES)) or 1)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return Moved.SOURCE_BROKE
            if not data or not left:
                return Moved.LIMIT if data else Moved.ENDED
            try:
                await sink.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return Moved.SINK_BROKE
            if self.record is not None:
                self.record += data
            left -= len(data)
            count(len(data))
