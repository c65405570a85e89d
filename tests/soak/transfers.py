"""Bytes that are acknowledged: a transfer goes on where it stopped, over as many streams as it takes.

sender   -- number, size, habit -->   receiver
         <-- acknowledgement -------            where to go on
         -- bytes, end ------------>
         <-- acknowledgements, end --           each: how many bytes there are, and the digest of all of them
"""

import hashlib
import math
import random
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from agentmesh.abc import Stream
from agentmesh.testing.transport_setup import pattern
from agentmesh.types import ProtocolId
from tests.soak.scenario import Habit, Transfer

TRANSFER_ID = ProtocolId("/soak/transfer/1.0.0")
HELLO = struct.Struct(">QQB")
ACKNOWLEDGEMENT = struct.Struct(">Q16s")
MAX_CHUNK_BYTES = 64 * 1024
PAUSE = 2.0  # seconds at most, of a receiver that takes breaks

Complain = Callable[[str], None]


class Text:
    """The bytes of one transfer as far as they are known: a digest of the first `size` of them."""

    def __init__(self, number: int) -> None:
        self.size = 0
        self._number = number
        self._hash: Any = hashlib.blake2b(number.to_bytes(8), digest_size=16)

    def __repr__(self) -> str:
        return f"{self.size} bytes"

    def take(self, data: bytes) -> None:
        """What follows, as it came."""
        self._hash.update(data)
        self.size += len(data)

    def expect(self, size: int) -> None:
        """What follows, up to `size`, as it should be."""
        while self.size < size:
            self.take(self.piece(self.size, min(MAX_CHUNK_BYTES, size - self.size)))

    def piece(self, start: int, size: int) -> bytes:
        return pattern(start + 7919 * self._number, size)

    @property
    def digest(self) -> bytes:
        return bytes(self._hash.digest())


@attrs.define
class Received:
    """What a receiver keeps of a transfer, whatever becomes of the streams. The latest stream holds it."""

    text: Text
    holder: int = 0

    @property
    def acknowledgement(self) -> bytes:
        return ACKNOWLEDGEMENT.pack(self.text.size, self.text.digest)


@attrs.frozen
class Store:
    """What all receivers have. It outlives their restarts, as files would.

    Attributes:
        complain: called with what must not be.
        received: by the number of the transfer.
    """

    complain: Complain
    received: dict[int, Received] = attrs.Factory(dict[int, Received])

    async def serve(self, stream: Stream) -> None:
        """One stream of a transfer. A sender that breaks off ends it, as the runtime says."""
        hello = await receive_exactly(stream, HELLO.size)
        number, size, habit = HELLO.unpack(hello)
        entry = self.received.setdefault(number, Received(Text(number)))
        entry.holder = holder = entry.holder + 1
        chance = random.Random(f"{number}/{holder}")
        quits_at = chance.randrange(size) if habit == Habit.REFUSES and holder == 1 else size + 1
        await stream.send_all(entry.acknowledgement)
        while data := bytes(await stream.receive_some()):
            if entry.holder != holder:
                stream.reset()  # the sender has begun another stream, and knows this one to be broken
                return
            entry.text.take(data)
            await stream.send_all(entry.acknowledgement)
            if entry.text.size >= quits_at:
                stream.reset()
                return
            if habit == Habit.PAUSES:
                await trio.sleep(chance.random() * PAUSE)
        if entry.holder == holder and entry.text.size != size:
            self.complain(f"transfer {number} ended after {entry.text.size} of {size} bytes, as if that were all")

    def has(self, sending: "Sending") -> bool:
        """Whether all that was acknowledged is here, as it was sent."""
        acknowledged, entry = sending.acknowledged, self.received.get(sending.transfer.number)
        if entry is None:
            return acknowledged.size == 0
        expected = Text(sending.transfer.number)
        expected.expect(entry.text.size)
        return entry.text.size >= acknowledged.size and entry.text.digest == expected.digest


@attrs.define
class Sending:
    """The sender's side of a transfer.

    Attributes:
        acknowledged: bytes that the receiver said it has. They must never be asked for again.
        attempts: how often a stream was opened.
        sent: bytes handed to streams, those of vain attempts too.
        failures: what ended the vain attempts.
    """

    transfer: Transfer
    complain: Complain = attrs.field(repr=False)
    acknowledged: Text = attrs.field(init=False)
    attempts: int = 0
    sent: int = 0
    failures: list[str] = attrs.field(factory=list[str], repr=False)
    _chance: random.Random = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.acknowledged = Text(self.transfer.number)
        self._chance = random.Random(self.transfer.number)

    @property
    def done(self) -> bool:
        return self.acknowledged.size == self.transfer.size

    async def attempt(self, open_stream: Callable[[], Awaitable[Stream]]) -> None:
        """Send what is not acknowledged over one stream.

        Raises:
            Whatever `open_stream` raises; ExceptionGroup of trio.BrokenResourceError: the stream broke.
        """
        self.attempts += 1
        leaves = self.transfer.habit is Habit.LEAVES and self.attempts == 1
        with trio.move_on_after(self._chance.random() if leaves else math.inf):
            stream: Stream = await open_stream()
            try:
                await self._converse(stream)
                await stream.aclose()
            finally:
                stream.reset()  # unless it was closed: an end would say that this was all

    async def _converse(self, stream: Stream) -> None:
        transfer = self.transfer
        await stream.send_all(HELLO.pack(transfer.number, transfer.size, transfer.habit))
        self._acknowledge(await receive_exactly(stream, ACKNOWLEDGEMENT.size))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send, stream)
            await self._hear(stream)

    async def _send(self, stream: Stream) -> None:
        start, size = self.acknowledged.size, self.transfer.size
        quits = self.transfer.habit is Habit.QUITS and self.attempts == 1
        quits_at = self._chance.randrange(size) if quits else size
        while start < quits_at:
            piece = self.acknowledged.piece(start, min(self._chance.randint(1, MAX_CHUNK_BYTES), quits_at - start))
            await stream.send_all(piece)
            start += len(piece)
            self.sent += len(piece)
        if quits:
            raise trio.BrokenResourceError("we quit")
        await stream.send_eof()

    async def _hear(self, stream: Stream) -> None:
        while not self.done:
            self._acknowledge(await receive_exactly(stream, ACKNOWLEDGEMENT.size))
        if await stream.receive_some():
            self.complain(f"{self.transfer}: more acknowledgements than bytes")

    def _acknowledge(self, message: bytes) -> None:
        size, digest = ACKNOWLEDGEMENT.unpack(message)
        if size < self.acknowledged.size:
            self.complain(f"{self.transfer}: {self.acknowledged.size} bytes were acknowledged, now it is {size}")
        self.acknowledged.expect(size)
        if digest != self.acknowledged.digest:
            self.complain(f"{self.transfer}: the first {size} bytes did not arrive as they were sent")


async def receive_exactly(stream: trio.abc.ReceiveStream, size: int) -> bytes:
    """`size` bytes. Raises AssertionError when the stream ends before, as if all were well."""
    data = bytearray()
    while len(data) < size:
        more = await stream.receive_some(size - len(data))
        if not more:
            raise AssertionError(f"the stream ended after {len(data)} of {size} bytes")
        data += more
    return bytes(data)
