"""A stream to a target, by way of an agent, on the one connection that it was opened on."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

import trio

from agentmesh.abc import Stream
from agentmesh.errors import ErrorCode, StreamResetError
from agentmesh.pool.router.claims import ConnectionKey
from agentmesh.pool.router.connection import Lease
from agentmesh.protocols.pool import OpenResult


class PooledStream(trio.abc.HalfCloseableStream):
    """The bytes of the target. It is never moved to another connection: if its own is lost, it breaks.

    Attributes:
        key: the connection's.
        lease: its place there; given back when the stream is closed.
    """

    def __init__(self, stream: Stream, lease: Lease, on_end: Callable[[], None]) -> None:
        self.key: ConnectionKey = lease.connection.key
        self.lease = lease
        self._stream = stream
        self._on_end = on_end
        self._cut: StreamResetError | None = None

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        with self._broken_when_cut():
            await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        with self._broken_when_cut():
            await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        with self._broken_when_cut():
            await self._stream.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        with self._broken_when_cut():
            return bytes(await self._stream.receive_some(max_bytes))

    async def aclose(self) -> None:
        self._cut = None
        try:
            await self._stream.aclose()
        finally:
            self._end()

    def reset(self, code: int = ErrorCode.NO_ERROR) -> None:
        """Cut both directions now: the target's connection is cut too."""
        self._stream.reset(code)
        self._end()

    def cut(self, code: int, reason: str) -> None:
        """Cut it for a reason that is not its user's, who gets StreamResetError."""
        self._cut = StreamResetError(reason, code)
        self.reset(code)

    def _end(self) -> None:
        self.lease.end()
        self._on_end()

    @contextmanager
    def _broken_when_cut(self) -> Generator[None]:
        try:
            yield
        except trio.ClosedResourceError:
            if self._cut is None:
                raise
            raise self._cut from None


Opened = PooledStream | OpenResult
