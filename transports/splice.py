"""Moving bytes from socket to socket: by the kernel, through pipes, or else by copying.

A chunk goes into a pipe and out of it again by `splice`, without passing through this process. A pipe is taken when
there is a chunk and given back when it is empty, so a circuit that is idle holds none; when all are taken, by sinks
that do not read, the other circuits copy. Between two chunks everybody else has a turn.
"""

import abc
import math
import os
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import cast

import attrs
import trio

from agentmesh.abc import ByteStream, Moved, Splicer
from agentmesh.transports.pipe_pool import PipePool
from agentmesh.transports.sockets import keep_alive

CHUNK_BYTES = 1024 * 1024  # spliced at once
COPY_BYTES = 128 * 1024  # copied at once
MAX_DESCRIPTOR_SHARE = 0.75  # of what this process may have open; beyond, no connection is taken to be moved from

Operation = Callable[[int], int]  # on a descriptor; how many bytes, or BlockingIOError


@contextmanager
def open_splicer() -> Generator[Splicer]:
    """The best way that this machine has, chosen now. Leaving the block closes the pipes that nobody uses."""
    if not can_splice():
        yield CopyingSplicer()
        return
    with PipePool() as pipes:
        yield KernelSplicer(pipes)


def can_splice() -> bool:
    """Whether this kernel splices between sockets and pipes. Tried, since a sandbox may have the call and refuse it."""
    one, other = socket.socketpair()
    with one, other, PipePool() as pipes:
        one.sendall(b"?")
        try:
            pipe = pipes.take()
            if pipe is None:
                return False
            try:
                return pipe.fill(other.fileno(), 1) == pipe.drain(other.fileno()) == 1
            finally:
                pipes.give(pipe)
        except (AttributeError, OSError):
            return False


class SourceBrokeError(Exception):
    """The source cannot be read from any more."""


class SinkBrokeError(Exception):
    """The sink cannot be written to any more."""


@attrs.define(eq=False)
class Way:
    """One direction. Descriptors are looked up at each use: at any await somebody may close the sockets.

    Attributes:
        left: bytes that may still be handed on; math.inf for any number.
    """

    source: trio.SocketStream
    sink: trio.SocketStream
    left: float
    count: Callable[[int], None]

    def room(self, most: int) -> int:
        """How much of `most` may still be handed on."""
        return int(min(most, self.left))

    def read_nowait(self, operate: Operation) -> int | None:
        """What comes of operating on the source; None when there is nothing to be had yet."""
        try:
            return operate(_descriptor(self.source))
        except BlockingIOError:
            return None
        except (OSError, trio.ClosedResourceError) as exc:
            raise SourceBrokeError from exc

    async def wait_readable(self) -> None:
        try:
            await trio.lowlevel.wait_readable(_descriptor(self.source))
        except (OSError, trio.ClosedResourceError) as exc:
            raise SourceBrokeError from exc

    def write_nowait(self, operate: Operation) -> int | None:
        """Operate on the sink, and count what was handed on; None when there is no room yet."""
        try:
            size = operate(_descriptor(self.sink))
        except BlockingIOError:
            return None
        except (OSError, trio.ClosedResourceError) as exc:
            raise SinkBrokeError from exc
        self.left -= size
        self.count(size)
        return size

    async def write(self, operate: Operation) -> int:
        """As soon as there is room."""
        while (size := self.write_nowait(operate)) is None:
            try:
                await trio.lowlevel.wait_writable(_descriptor(self.sink))
            except (OSError, trio.ClosedResourceError) as exc:
                raise SinkBrokeError from exc
        return size

    async def is_over(self) -> bool:
        """Whether the source has ended, when nothing of it may be handed on any more."""
        try:
            return not await self.source.socket.recv(1, socket.MSG_PEEK)
        except (OSError, trio.ClosedResourceError) as exc:
            raise SourceBrokeError from exc


class SocketSplicer(Splicer):
    """What both ways have in common: sockets, and the loop over chunks."""

    def take(self, stream: ByteStream) -> trio.SocketStream | None:
        """Sockets, as long as descriptors are not short: sessions come before circuits on connections of their own."""
        if not isinstance(stream, trio.SocketStream) or _is_crowded(stream.socket.fileno()):
            return None
        keep_alive(stream)
        return stream

    async def move(
        self,
        source: trio.abc.HalfCloseableStream,
        sink: trio.abc.HalfCloseableStream,
        max_bytes: int | None,
        count: Callable[[int], None],
    ) -> Moved:
        left = math.inf if max_bytes is None else max_bytes
        way = Way(cast("trio.SocketStream", source), cast("trio.SocketStream", sink), left, count)
        try:
            while way.left:
                await way.wait_readable()  # even where there is more already: others have a turn, and chunks grow
                if await self.chunk(way) == 0:
                    return Moved.ENDED
            return Moved.ENDED if await way.is_over() else Moved.LIMIT
        except SourceBrokeError:
            return Moved.SOURCE_BROKE
        except SinkBrokeError:
            return Moved.SINK_BROKE

    @abc.abstractmethod
    async def chunk(self, way: Way) -> int | None:
        """Move what there is, up to a chunk, and say how much; 0 when the source has ended, None for not yet."""


class CopyingSplicer(SocketSplicer):
    """For systems without `splice`. One buffer for all: what a sink does not take at once is kept apart.

    Args:
        chunk_bytes: copied at once.
    """

    method = "copy"

    def __init__(self, chunk_bytes: int = COPY_BYTES) -> None:
        self._buffer = memoryview(bytearray(chunk_bytes))

    async def chunk(self, way: Way) -> int | None:
        room = self._buffer[: way.room(len(self._buffer))]
        size = way.read_nowait(lambda source: os.readv(source, [room]))
        if size is None:
            return None
        data = room[:size]
        sent = way.write_nowait(lambda sink: os.write(sink, data)) if size else 0
        if (sent or 0) < size:
            await self._write_rest(way, bytes(data[sent or 0 :]))
        return size

    async def _write_rest(self, way: Way, rest: bytes) -> None:
        view = memoryview(rest)

        def write(sink: int) -> int:
            return os.write(sink, view)

        while view:
            view = view[await way.write(write) :]


class KernelSplicer(SocketSplicer):
    """By `splice`. While nothing is moved at all no pipe is open.

    Args:
        pipes: what the chunks go through.
        chunk_bytes: moved at once.
    """

    method = "splice"

    def __init__(self, pipes: PipePool, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._pipes = pipes
        self._chunk_bytes = chunk_bytes
        self._copier = CopyingSplicer(min(chunk_bytes, COPY_BYTES))
        self._moving = 0

    async def move(
        self,
        source: trio.abc.HalfCloseableStream,
        sink: trio.abc.HalfCloseableStream,
        max_bytes: int | None,
        count: Callable[[int], None],
    ) -> Moved:
        self._moving += 1
        try:
            return await super().move(source, sink, max_bytes, count)
        finally:
            self._moving -= 1
            if not self._moving:
                self._pipes.trim()

    async def chunk(self, way: Way) -> int | None:
        pipe = self._pipes.take()
        if pipe is None:
            return await self._copier.chunk(way)
        try:
            size = way.read_nowait(lambda source: pipe.fill(source, way.room(self._chunk_bytes)))
            while pipe.held:
                await way.write(pipe.drain)
            return size
        finally:
            self._pipes.give(pipe)


def _descriptor(stream: trio.SocketStream) -> int:
    descriptor = stream.socket.fileno()
    if descriptor < 0:
        raise trio.ClosedResourceError("this socket was closed")
    return descriptor


def _is_crowded(descriptor: int) -> bool:
    """Whether most of what may be open is: the kernel gives the lowest number that is free."""
    limit = os.sysconf("SC_OPEN_MAX")
    return limit > 0 and descriptor >= limit * MAX_DESCRIPTOR_SHARE
