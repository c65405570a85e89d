"""The bytes of one connection, to its tunnel and back, so that no part is ever taken for the whole."""

import operator

import trio

from agentmesh.pool.agent.targets import cut
from agentmesh.pool.copying import Copied, copy_both_ways

Data = bytes | bytearray | memoryview


class Preceded(trio.abc.HalfCloseableStream):
    """A stream of which some bytes were read already.

    Args:
        stream: closed with this one.
        received: those bytes; they come first.
    """

    def __init__(self, stream: trio.abc.HalfCloseableStream, received: bytes) -> None:
        self._stream = stream
        self._received = received

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if not self._received:
            return await self._stream.receive_some(max_bytes)
        size = len(self._received) if max_bytes is None else operator.index(max_bytes)
        if size < 1:
            raise ValueError("max_bytes must be at least 1")
        await trio.lowlevel.checkpoint()
        data, self._received = self._received[:size], self._received[size:]
        return data

    async def send_all(self, data: Data) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def carry(near: trio.abc.HalfCloseableStream, far: trio.abc.HalfCloseableStream, received: bytes = b"") -> Copied:
    """Copy both ways until both have ended, and close both; when either breaks, cut the other.

    Args:
        near: the connection.
        far: its tunnel.
        received: bytes of the connection that were read already.
    Cancellation: cuts both.
    """
    try:
        copied = await copy_both_ways(Preceded(near, received) if received else near, far)
        if copied.is_whole:
            await near.aclose()
            await far.aclose()
        return copied
    finally:  # does nothing to one that is closed
        try:
            await cut(near)
        finally:
            await cut(far)
