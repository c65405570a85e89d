"""The memory transport with one fault each: those of dialling, listening and letting go."""

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import trio

from agentmesh.abc import ByteStream, Listener, StreamHandler
from agentmesh.errors import AddressError, DialError
from agentmesh.runtime.nursery import open_background
from agentmesh.transports.memory import MemoryHub, memory_number
from agentmesh.types import Address
from tests.testing.faults import ANY, Faulty, WrappingListener


class NobodyIsAnOSError(Faulty):
    @asynccontextmanager
    async def dial(self, address: Address) -> AsyncGenerator[ByteStream]:
        try:
            async with super().dial(address) as stream:
                yield stream
        except DialError as exc:
            raise OSError("refused") from exc


class WaitsForNobody(Faulty):
    """A dial that nobody answers never ends."""

    @asynccontextmanager
    async def dial(self, address: Address) -> AsyncGenerator[ByteStream]:
        try:
            async with super().dial(address) as stream:
                yield stream
        except DialError:
            await trio.sleep_forever()


class DialsAnything(Faulty):
    def can_dial(self, address: Address) -> bool:
        return True


class ListensOnAnything(Faulty):
    @asynccontextmanager
    async def listen(self, address: Address) -> AsyncGenerator[Listener]:
        async with super().listen(ANY if memory_number(address) is None else address) as listener:
            yield listener


class SharesItsPlace(Faulty):
    @asynccontextmanager
    async def listen(self, address: Address) -> AsyncGenerator[Listener]:
        taken = memory_number(address) in self.hub.numbers
        async with super().listen(ANY if taken else address) as listener:
            yield listener


class KeepsItsPlace(Faulty):
    """A closed listener goes on blocking its number."""

    @asynccontextmanager
    async def listen(self, address: Address) -> AsyncGenerator[Listener]:
        async with super().listen(address) as listener:
            yield listener
            number = memory_number(listener.addresses[0])
        with suppress(OSError):
            self.hub.bind(number or 0)


class RefusesEarlyCallers(Faulty):
    """Who dials before `serve` is turned away."""

    def __init__(self, hub: MemoryHub) -> None:
        super().__init__(hub)
        self.serving: set[Listener] = set()

    @asynccontextmanager
    async def dial(self, address: Address) -> AsyncGenerator[ByteStream]:
        if memory_number(address) in self.hub.numbers and not self.serving:
            raise DialError("not yet")
        async with super().dial(address) as stream:
            yield stream

    @asynccontextmanager
    async def listen(self, address: Address) -> AsyncGenerator[Listener]:
        serving = self.serving

        class Late(WrappingListener):
            async def serve(self, handler: StreamHandler) -> None:
                serving.add(self)
                await super().serve(handler)

        async with super().listen(address) as listener:
            yield Late(self, listener)


class WrapsExceptions(Faulty):
    @asynccontextmanager
    async def dial(self, address: Address) -> AsyncGenerator[ByteStream]:
        async with trio.open_nursery(), super().dial(address) as stream:
            yield stream


class OutlivesItsBlock(Faulty):
    """The dialled connection is left open behind the block."""

    @asynccontextmanager
    async def dial(self, address: Address) -> AsyncGenerator[ByteStream]:
        await trio.lowlevel.checkpoint()
        number = memory_number(address)
        if number is None:
            raise AddressError("not in memory")
        yield self.hub.connect(number)


class OutlivesItsHandler(Faulty):
    @asynccontextmanager
    async def listen(self, address: Address) -> AsyncGenerator[Listener]:
        class Keeping(WrappingListener):
            async def serve(self, handler: StreamHandler) -> None:
                async def handle(stream: ByteStream, source: Address | None) -> None:
                    await handler(stream, source)
                    await trio.sleep_forever()

                await self._listener.serve(handle)

        async with super().listen(address) as listener:
            yield Keeping(self, listener)


class LeavesASocket(Faulty):
    """A dial cancelled at the wrong moment forgets a socket."""

    @asynccontextmanager
    async def dial(self, address: Address) -> AsyncGenerator[ByteStream]:
        held = socket.socket()
        left.append(held)
        await trio.lowlevel.checkpoint()
        left.remove(held)
        held.close()
        async with super().dial(address) as stream:
            yield stream


class LeavesATask(Faulty):
    """Every connection that was hung up at once costs a task."""

    @asynccontextmanager
    async def listen(self, address: Address) -> AsyncGenerator[Listener]:
        async with super().listen(address) as listener, open_background() as nursery:

            class Leaking(WrappingListener):
                async def serve(self, handler: StreamHandler) -> None:
                    async def handle(stream: ByteStream, source: Address | None) -> None:
                        await handler(stream, source)
                        nursery.start_soon(trio.sleep_forever)

                    await self._listener.serve(handle)

            yield Leaking(self, listener)


left: list[socket.socket] = []
