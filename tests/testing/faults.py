"""The memory transport with one fault each: those of its streams."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

import trio

from agentmesh.abc import ByteStream, Listener, StreamHandler
from agentmesh.transports.memory import MemoryTransport
from agentmesh.transports.pipes import Data, End, MemoryPipe, PipeStream
from agentmesh.types import Address

ANY = Address.parse("/memory/0")


class Faulty(MemoryTransport):
    """The memory transport, and a way to put something in front of each stream."""

    def wrap(self, stream: ByteStream) -> ByteStream:
        return stream

    @asynccontextmanager
    async def dial(self, address: Address) -> AsyncGenerator[ByteStream]:
        async with super().dial(address) as stream:
            yield self.wrap(stream)

    @asynccontextmanager
    async def listen(self, address: Address) -> AsyncGenerator[Listener]:
        async with super().listen(address) as listener:
            yield WrappingListener(self, listener)


class WrappingListener(Listener):
    def __init__(self, transport: Faulty, listener: Listener) -> None:
        self._transport = transport
        self._listener = listener

    @property
    def addresses(self) -> Sequence[Address]:
        return self._listener.addresses

    async def serve(self, handler: StreamHandler) -> None:
        async def handle(stream: ByteStream, source: Address | None) -> None:
            await handler(self._transport.wrap(stream), source)

        await self._listener.serve(handle)


class Passing(trio.abc.HalfCloseableStream):
    """A stream before another, without a fault of its own."""

    def __init__(self, stream: ByteStream) -> None:
        assert isinstance(stream, PipeStream)
        self.stream = stream

    async def send_all(self, data: Data) -> None:
        await self.stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self.stream.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return await self.stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self.stream.aclose()


class LosesAByte(Faulty):
    """The first of every megabyte."""

    def wrap(self, stream: ByteStream) -> ByteStream:
        class Losing(Passing):
            sent = 0

            async def send_all(self, data: Data) -> None:
                before, self.sent = self.sent, self.sent + len(data)
                lost = 1 if before >> 20 < self.sent >> 20 else 0
                await self.stream.send_all(bytes(data)[lost:])

        return Losing(stream)


class SwapsBytes(Faulty):
    def wrap(self, stream: ByteStream) -> ByteStream:
        class Swapping(Passing):
            async def send_all(self, data: Data) -> None:
                data = bytes(data)
                await self.stream.send_all(data[1:2] + data[:1] + data[2:] if len(data) > 40_000 else data)

        return Swapping(stream)


class LosesWhatIsLeftOver(Faulty):
    """What a receive did not ask for is gone."""

    def wrap(self, stream: ByteStream) -> ByteStream:
        class Losing(Passing):
            async def receive_some(self, max_bytes: int | None = None) -> bytes:
                return (await self.stream.receive_some())[:max_bytes]

        return Losing(stream)


class IgnoresMaxBytes(Faulty):
    def wrap(self, stream: ByteStream) -> ByteStream:
        class Ignoring(Passing):
            async def receive_some(self, max_bytes: int | None = None) -> bytes:
                return await self.stream.receive_some()

        return Ignoring(stream)


class SignalsNoEnd(Faulty):
    """Neither end hears of it when the other one closes."""

    def wrap(self, stream: ByteStream) -> ByteStream:
        class Silent(Passing):
            async def receive_some(self, max_bytes: int | None = None) -> bytes:
                return await self.stream.receive_some(max_bytes) or await trio.sleep_forever()

        return Silent(stream)


class ResetsOnClose(Faulty):
    """Closing loses what was sent and not yet read."""

    def wrap(self, stream: ByteStream) -> ByteStream:
        class Hasty(Passing):
            async def aclose(self) -> None:
                self.stream.outgoing.cut()
                await self.stream.aclose()

        return Hasty(stream)


class TakesEverything(Faulty):
    def wrap(self, stream: ByteStream) -> ByteStream:
        assert isinstance(stream, PipeStream)
        for pipe in (stream.incoming, stream.outgoing):
            assert isinstance(pipe, MemoryPipe)
            pipe.max_bytes = 1 << 40
        return stream


class ForgetsThatItClosed(Faulty):
    def wrap(self, stream: ByteStream) -> ByteStream:
        class Forgetful(Passing):
            async def receive_some(self, max_bytes: int | None = None) -> bytes:
                with suppress(trio.ClosedResourceError):
                    return await self.stream.receive_some(max_bytes)
                return b""

        return Forgetful(stream)


class LetsTwoSend(Faulty):
    def wrap(self, stream: ByteStream) -> ByteStream:
        class Crowded(Passing):
            async def send_all(self, data: Data) -> None:
                await self.stream.outgoing.put(data)

        return Crowded(stream)


class ClosesBothHalves(Faulty):
    def wrap(self, stream: ByteStream) -> ByteStream:
        class Whole(Passing):
            async def send_eof(self) -> None:
                await self.stream.send_eof()
                if self.stream.incoming.reader is End.OPEN:
                    self.stream.incoming.close_reader()

        return Whole(stream)
