"""Streams that misbehave on purpose."""

from typing import overload

import trio

Data = bytes | bytearray | memoryview


class HangingStream(trio.abc.Stream):
    """A stream whose n-th operation hangs until it is cancelled; made by `hang_at`.

    Attributes:
        calls: how many operations have begun: sends, receives and waits for room; closing is none.
        hanging: set once the n-th has begun.
    """

    def __init__(self, stream: trio.abc.Stream, n: int) -> None:
        self.calls = 0
        self.hanging = trio.Event()
        self._stream = stream
        self._n = n

    async def send_all(self, data: Data) -> None:
        await self._count()
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._count()
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        await self._count()
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def _count(self) -> None:
        self.calls += 1
        if self.calls == self._n:
            self.hanging.set()
            await trio.sleep_forever()


class HangingHalfCloseableStream(HangingStream, trio.abc.HalfCloseableStream):
    """The same over a stream that can be closed for sending; `send_eof` is an operation that counts."""

    def __init__(self, stream: trio.abc.HalfCloseableStream, n: int) -> None:
        super().__init__(stream, n)
        self._half = stream

    async def send_eof(self) -> None:
        await self._count()
        await self._half.send_eof()


@overload
def hang_at(stream: trio.abc.HalfCloseableStream, n: int) -> HangingHalfCloseableStream: ...
@overload
def hang_at(stream: trio.abc.Stream, n: int) -> HangingStream: ...
def hang_at(stream: trio.abc.Stream, n: int) -> HangingStream:
    """Wrap `stream` so that the n-th operation on it (from 1) hangs until cancelled, before it has done anything.

    Later operations work again. What the peer sees is a process that stopped in the middle: no end, no reset.
    """
    if isinstance(stream, trio.abc.HalfCloseableStream):
        return HangingHalfCloseableStream(stream, n)
    return HangingStream(stream, n)
