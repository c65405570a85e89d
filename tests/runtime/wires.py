"""Wires for tests of single connections: two joined ends, and what can be watched or done between them."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import trio
import trio.testing

from agentmesh.transports.pipes import BUFFER_BYTES, MemoryPipe, PipeStream

Data = bytes | bytearray | memoryview


def duplex(max_bytes: int = BUFFER_BYTES, max_bytes_back: int | None = None) -> tuple[PipeStream, PipeStream]:
    """Two ends of a connection. What the first sends waits in `max_bytes`, what the second sends in as many or in
    `max_bytes_back`.
    """
    there, back = MemoryPipe(max_bytes), MemoryPipe(max_bytes_back or max_bytes)
    return PipeStream(back, there), PipeStream(there, back)


@asynccontextmanager
async def socket_streams() -> AsyncGenerator[tuple[trio.SocketStream, trio.SocketStream]]:
    """Two ends of a TCP connection over loopback."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with (
        listener,
        await trio.testing.open_stream_to_socket_listener(listener) as ours,
        await listener.accept() as theirs,
    ):
        yield ours, theirs


@attrs.frozen
class Sent:
    """One write to the wire."""

    who: str
    data: bytes


class Watched(trio.abc.Stream):
    """A stream that writes down what is sent over it.

    Args:
        stream: that does the work.
        who: the sender's name.
        log: where to.
        written: is awaited after each write, and told how many there were.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        who: str,
        log: list[Sent],
        written: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        self._stream = stream
        self._who = who
        self._log = log
        self._written = written

    async def send_all(self, data: Data) -> None:
        self._log.append(Sent(self._who, bytes(data)))
        await self._stream.send_all(data)
        if self._written is not None:
            await self._written(len(self._log))

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()


def watched_duplex() -> tuple[Watched, Watched, list[Sent]]:
    """A dialer's and a listener's end, and what they say in the order in which they say it."""
    log: list[Sent] = []
    dialer, listener = duplex()
    return Watched(dialer, "dialer", log), Watched(listener, "listener", log), log


class Tampered(Watched):
    """A stream whose every write passes through `change` first."""

    def __init__(self, stream: trio.abc.Stream, change: Callable[[bytes], bytes]) -> None:
        super().__init__(stream, "", [])
        self._change = change

    async def send_all(self, data: Data) -> None:
        await super().send_all(self._change(bytes(data)))
