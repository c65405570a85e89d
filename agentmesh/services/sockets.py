"""Connections of this machine as streams of somebody who is known."""

import select
import socket
import struct
from collections.abc import Generator
from contextlib import contextmanager

import trio

from agentmesh.abc import PeerStream
from agentmesh.types import PeerId

LOOK_INTERVAL = 0.5  # seconds between two looks whether an asker is there whose request nobody reads
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: what was cut must not look like what has ended


class LocalStream(PeerStream):
    """A connection of a program of this machine, which speaks as the node itself.

    Its end is that of the asker: whoever closes a connection before the answer is there does not wait for it.
    """

    def __init__(self, stream: trio.SocketStream, peer: PeerId) -> None:
        self._stream = stream
        self._peer = peer
        self._broken = trio.Event()

    @property
    def peer(self) -> PeerId:
        return self._peer

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        with self._noticing():
            if data := await self._stream.receive_some(max_bytes):
                return data
            raise trio.BrokenResourceError("the asker left")

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        with self._noticing():
            await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        with self._noticing():
            await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def reset(self, code: int = 0) -> None:
        if self._stream.socket.fileno() >= 0:
            self._stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self._stream.socket.close()

    async def wait_broken(self) -> trio.BrokenResourceError:
        while not self._broken.is_set():
            with trio.move_on_after(LOOK_INTERVAL):
                await self._broken.wait()
            if self._is_left():
                self._broken.set()
        return trio.BrokenResourceError("the asker left")

    def _is_left(self) -> bool:
        """Whether the asker closed its end, also behind bytes that nobody has read."""
        looking = select.poll()
        looking.register(self._stream.socket.fileno(), select.POLLRDHUP)
        return bool(looking.poll(0))

    @contextmanager
    def _noticing(self) -> Generator[None]:
        try:
            yield
        except trio.BrokenResourceError:
            self._broken.set()
            raise
