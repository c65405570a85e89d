"""Streams made of two pipes in memory, one each way.

A `Pipe` decides what becomes of the bytes between its two ends; `PipeStream` adds what Trio's contract asks of a
stream. The memory transport has the pipe that only buffers; the simulated network of `agentmesh.testing` brings one
that takes time.
"""

import abc
import enum
import operator
from collections import deque

import trio

from agentmesh.runtime.guard import Guard

BUFFER_BYTES = 256 * 1024  # that one direction of a connection holds before its sender waits
READ_BYTES = 64 * 1024  # into which small pieces are joined for a reader that names no number

Data = bytes | bytearray | memoryview


class End(enum.Enum):
    """How one end of a pipe is."""

    OPEN = enum.auto()
    CLOSED = enum.auto()  # by its own user
    BROKEN = enum.auto()  # from outside


class Pipe(abc.ABC):
    """Bytes one way, between a writer and a reader that each may leave."""

    def __init__(self) -> None:
        self.writer = End.OPEN
        self.reader = End.OPEN
        self._pieces: deque[bytes | memoryview] = deque()
        self._size: int = 0
        self._changed = trio.lowlevel.ParkingLot()

    @abc.abstractmethod
    async def put(self, data: Data) -> None:
        """Take all of `data`, as `trio.abc.SendStream.send_all`."""

    @abc.abstractmethod
    async def wait_room(self) -> None:
        """As `trio.abc.SendStream.wait_send_all_might_not_block`."""

    @abc.abstractmethod
    async def get(self, max_bytes: int) -> bytes:
        """At least one byte and at most `max_bytes`, or b"" at the end."""

    def close_writer(self) -> None:
        """End the bytes: the reader gets what was put before, then b""."""
        self.writer = End.CLOSED
        self._changed.unpark_all()

    def close_reader(self) -> None:
        """Drop what is in the pipe; the writer's next `put` breaks."""
        self.reader = End.CLOSED
        self._discard()

    def cut(self) -> None:
        """Break both ends that are still open, and lose what is under way."""
        self.writer = End.BROKEN if self.writer is End.OPEN else self.writer
        self.reader = End.BROKEN if self.reader is End.OPEN else self.reader
        self._discard()

    def check_writer(self) -> None:
        if self.writer is End.CLOSED:
            raise trio.ClosedResourceError("this end of the stream was closed for sending")
        if self.writer is End.BROKEN or self.reader is not End.OPEN:
            raise trio.BrokenResourceError("the other end of the stream is gone")

    def check_reader(self) -> None:
        if self.reader is End.CLOSED:
            raise trio.ClosedResourceError("this stream was closed")
        if self.reader is End.BROKEN:
            raise trio.BrokenResourceError("the stream was cut")

    def _take(self, max_bytes: int) -> bytes:
        """The first bytes, as whole pieces where that is possible without a copy."""
        first = self._pieces.popleft()
        if len(first) > max_bytes:
            view = memoryview(first)
            self._pieces.appendleft(view[max_bytes:])
            first = view[:max_bytes]
        taken = [first]
        left = max_bytes - len(first)
        while self._pieces and len(self._pieces[0]) <= left:
            taken.append(piece := self._pieces.popleft())
            left -= len(piece)
        self._size -= max_bytes - left
        return bytes(first) if len(taken) == 1 else b"".join(taken)

    def _discard(self) -> None:
        self._pieces.clear()
        self._size = 0
        self._changed.unpark_all()


class MemoryPipe(Pipe):
    """A bounded buffer.

    Attributes:
        max_bytes: what it holds before its writer waits.
    """

    def __init__(self, max_bytes: int = BUFFER_BYTES) -> None:
        super().__init__()
        self.max_bytes = max_bytes

    async def put(self, data: Data) -> None:
        await trio.lowlevel.checkpoint()
        self.check_writer()
        source = bytes(data)
        sent = 0
        while sent < len(source):
            await self._wait_room()
            piece = source[sent : sent + self.max_bytes - self._size]
            sent += len(piece)
            self._pieces.append(piece)
            self._size += len(piece)
            self._changed.unpark_all()

    async def wait_room(self) -> None:
        await trio.lowlevel.checkpoint()
        self.check_writer()
        await self._wait_room()

    async def _wait_room(self) -> None:
        while self._size >= self.max_bytes:
            await self._changed.park()
            self.check_writer()

    async def get(self, max_bytes: int) -> bytes:
        await trio.lowlevel.checkpoint()
        self.check_reader()
        while not self._size:
            if self.writer is End.CLOSED:
                return b""
            await self._changed.park()
            self.check_reader()
        data = self._take(max_bytes)
        self._changed.unpark_all()
        return data


class PipeStream(trio.abc.HalfCloseableStream):
    """One end of a connection: it reads from one pipe and writes to the other.

    Attributes:
        incoming: where it reads.
        outgoing: where it writes.

    Cancellation: a cancelled `receive_some` loses nothing; a cancelled `send_all` has sent some prefix of its data.
    """

    def __init__(self, incoming: Pipe, outgoing: Pipe) -> None:
        self.incoming = incoming
        self.outgoing = outgoing
        self._receiving = Guard("receiving")
        self._sending = Guard("sending")

    async def send_all(self, data: Data) -> None:
        with self._sending:
            await self.outgoing.put(data)

    async def wait_send_all_might_not_block(self) -> None:
        with self._sending:
            await self.outgoing.wait_room()

    async def send_eof(self) -> None:
        with self._sending:
            await trio.lowlevel.checkpoint()
            if self.incoming.reader is End.CLOSED:
                raise trio.ClosedResourceError("this stream was closed")
            self.outgoing.close_writer()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        max_bytes = READ_BYTES if max_bytes is None else operator.index(max_bytes)
        if max_bytes < 1:
            raise ValueError("max_bytes must be at least 1")
        with self._receiving:
            return await self.incoming.get(max_bytes)

    def close(self) -> None:
        """What `aclose` does, without the checkpoint."""
        self.outgoing.close_writer()
        self.incoming.close_reader()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()
