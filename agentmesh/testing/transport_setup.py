"""What the checks of a transport share: connections with both ends in hand, and bytes that can be told apart."""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import attrs
import trio

from agentmesh.abc import ByteStream, StreamHandler, Transport
from agentmesh.runtime.nursery import open_background
from agentmesh.testing.expect import expect
from agentmesh.types import Address

MIB = 1024 * 1024
BLOCK = random.Random(0).randbytes(65521)  # a prime length: chunks of any even size drift against it
MAX_CHUNK_BYTES = 100_000

MakePair = Callable[[], Awaitable[tuple[ByteStream, ByteStream]]]


@attrs.frozen
class TransportSetup:
    """A transport under test and what to ask of it; the attributes are the arguments of `check_transport`."""

    make_transports: Callable[[], AbstractAsyncContextManager[tuple[Transport, Transport]]]
    listen_address: Address
    dial_address: Callable[[Address], Address]
    wrong_address: Address
    exclusive: bool
    connections: int
    transfer_bytes: int
    max_buffered_bytes: int
    timeout: float

    @asynccontextmanager
    async def serving(self, handler: StreamHandler) -> AsyncGenerator[tuple[Transport, Address]]:
        """A listener whose connections `handler` gets; the block gets who dials it, and where."""
        async with (
            self.make_transports() as (dialer, listening),
            listening.listen(self.listen_address) as listener,
            open_background() as nursery,
        ):
            nursery.start_soon(listener.serve, handler)
            yield dialer, self.dial_address(listener.addresses[0])

    @asynccontextmanager
    async def pairs(self) -> AsyncGenerator[MakePair]:
        """A function that makes a connection and gives both its ends, the dialled one first. They live as the block."""
        arrived, arrivals = trio.open_memory_channel[ByteStream](0)

        async def hold_accepted(stream: ByteStream, source: Address | None) -> None:
            await arrived.send(stream)
            await trio.sleep_forever()

        async with self.serving(hold_accepted) as (dialer, address), open_background() as nursery:

            async def hold_dialed(task_status: trio.TaskStatus[ByteStream]) -> None:
                async with dialer.dial(address) as stream:
                    task_status.started(stream)
                    await trio.sleep_forever()

            async def make() -> tuple[ByteStream, ByteStream]:
                dialed: ByteStream = await nursery.start(hold_dialed)
                return dialed, await arrivals.receive()

            yield make

    @asynccontextmanager
    async def pair(self) -> AsyncGenerator[tuple[ByteStream, ByteStream]]:
        """One connection: the dialled end, and the accepted one."""
        async with self.pairs() as make:
            yield await make()


async def echo(stream: ByteStream, source: Address | None) -> None:
    """Send back what comes, until the end or a break."""
    try:
        while data := await stream.receive_some():
            await stream.send_all(data)
    except trio.BrokenResourceError:
        return


def pattern(start: int, size: int) -> bytes:
    """`size` bytes of an endless sequence, from its byte `start`: any loss, repetition or swap shows."""
    at = start % len(BLOCK)
    return (BLOCK * (1 + (at + size) // len(BLOCK)))[at : at + size]


async def send_pattern(stream: trio.abc.SendStream, total: int, chance: random.Random) -> None:
    """Send the first `total` bytes of the sequence, in pieces of any size."""
    sent = 0
    while sent < total:
        size = min(chance.randint(1, MAX_CHUNK_BYTES), total - sent)
        await stream.send_all(pattern(sent, size))
        sent += size


async def receive_pattern(stream: trio.abc.ReceiveStream, total: int, chance: random.Random) -> None:
    """Receive exactly the first `total` bytes of the sequence, asking for any number at a time."""
    received = 0
    while received < total:
        asked = min(chance.randint(1, MAX_CHUNK_BYTES), total - received)
        data = await stream.receive_some(asked)
        expect(len(data) > 0, f"the stream ended after {received} of {total} bytes")
        expect(len(data) <= asked, f"receive_some({asked}) gave {len(data)} bytes")
        expect(data == pattern(received, len(data)), f"bytes changed, or are missing, from {received} on")
        received += len(data)


async def expect_end(stream: trio.abc.ReceiveStream) -> None:
    """The stream has ended, and goes on having ended."""
    for _ in range(2):
        data = await stream.receive_some()
        expect(data == b"", f"{len(data)} bytes after the end")


async def expect_no_more(stream: trio.abc.ReceiveStream) -> None:
    """The stream has ended or broken."""
    try:
        await expect_end(stream)
    except trio.BrokenResourceError:
        return


async def read_exactly(stream: trio.abc.ReceiveStream, size: int) -> bytes:
    """`size` bytes, or fewer if the stream ends."""
    data = bytearray()
    while len(data) < size and (more := await stream.receive_some(size - len(data))):
        data += more
    return bytes(data)
