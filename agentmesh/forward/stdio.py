"""Standard input and output as a stream, so that a program like ssh can start us in place of a connection."""

import os
import sys

import trio

from agentmesh.errors import StreamResetError
from agentmesh.forward.carrying import carry
from agentmesh.forward.forwarder import OpenTunnel
from agentmesh.node import TunnelTarget

READ_BYTES = 64 * 1024


class StdioStream(trio.abc.HalfCloseableStream):
    """What comes on one file descriptor and goes to another.

    Each read and write is made in a thread: they may be terminals, files or pipes, and those who share them are not to
    find them changed. A cancelled read leaves its thread to wait.
    """

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._ended = False
        self._closed = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        self._check()
        try:
            size = READ_BYTES if max_bytes is None else max_bytes
            return await trio.to_thread.run_sync(os.read, self._source, size, abandon_on_cancel=True)
        except OSError as exc:
            raise trio.BrokenResourceError(f"standard input: {exc.strerror}") from exc

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._check(self._ended)
        try:
            await trio.to_thread.run_sync(_write, self._sink, bytes(data), abandon_on_cancel=True)
        except OSError as exc:
            raise trio.BrokenResourceError(f"standard output: {exc.strerror}") from exc

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        """Close the output, so that whoever reads it sees its end."""
        self._close_sink()
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """The input stays open: a thread may wait for it."""
        self._closed = True
        await self.send_eof()

    def _close_sink(self) -> None:
        if not self._ended:
            self._ended = True
            os.close(self._sink)

    def _check(self, ended: bool = False) -> None:
        if self._closed or ended:
            raise trio.ClosedResourceError


def open_stdio() -> StdioStream:
    """The program's own input and output. What it prints from then on goes to its standard error."""
    source, sink = os.dup(sys.stdin.fileno()), os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return StdioStream(source, sink)


async def forward_stdio(open_tunnel: OpenTunnel, target: TunnelTarget) -> None:
    """Carry the program's input to a target, and what comes back to its output, until both have ended.

    Raises:
        DialError: there is no tunnel; nothing was read.
        StreamResetError: the tunnel broke, or nobody takes the output any more.
    """
    tunnel = await open_tunnel(target)
    copied = await carry(open_stdio(), tunnel)
    if not copied.is_whole:
        raise StreamResetError(f"the tunnel to {target} broke")


def _write(sink: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(sink, view) :]
