"""A mesh of one caller and one provider in memory: bounded pipes that behave as the runtime's streams do."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.abc import Direction, Session, Stream
from agentmesh.errors import DialError, StreamResetError
from agentmesh.protocols.http import HTTP_ID, ASGIApp, HttpLimits, protocol
from agentmesh.protocols.http.wire import DEFAULT_LIMITS
from agentmesh.runtime.nursery import open_background
from agentmesh.services import Calls
from agentmesh.types import PeerId

WINDOW = 64 * 1024

ALICE = PeerId.from_ed25519(bytes(range(32)))  # calls
BOB = PeerId.from_ed25519(bytes(range(32, 64)))  # serves
CREDENTIAL = b"a credential of alice"


class Pipe:
    """One direction: at most `window` bytes wait in it."""

    def __init__(self, window: int) -> None:
        self.data = bytearray()
        self.window = window
        self.ended = False
        self.cut: int | None = None  # the code it was reset with
        self.unwanted = False  # the reader closed
        self.changed = trio.lowlevel.ParkingLot()


class MemoryStream(Stream):
    protocol = HTTP_ID

    def __init__(self, peer: PeerId, direction: Direction, inward: Pipe, outward: Pipe) -> None:
        self._peer = peer
        self.direction = direction
        self._in = inward
        self._out = outward
        self.closed = False

    @property
    def peer(self) -> PeerId:
        return self._peer

    @property
    def session(self) -> Session:
        raise NotImplementedError("these streams have no session")

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        rest = memoryview(bytes(data))
        while True:
            self._check_sendable()
            room = self._out.window - len(self._out.data)
            self._out.data += rest[:room]
            rest = rest[room:]
            self._out.changed.unpark_all()
            if not rest:
                return
            await self._out.changed.park()

    async def wait_send_all_might_not_block(self) -> None:
        raise NotImplementedError

    def _check_sendable(self) -> None:
        if self.closed or self._out.ended:
            raise trio.ClosedResourceError
        if self._out.cut is not None:
            raise StreamResetError("reset by the peer", self._out.cut)
        if self._out.unwanted:
            raise StreamResetError("nobody reads any more")

    async def wait_broken(self) -> trio.BrokenResourceError:
        await trio.lowlevel.checkpoint()
        while not self.closed and self._out.cut is None:
            await self._out.changed.park()
        if self._out.cut is None:
            raise trio.ClosedResourceError
        return StreamResetError("reset by the peer", self._out.cut, finished=self._in.ended)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        while not (self.closed or self._in.data or self._in.ended or self._in.cut is not None):
            await self._in.changed.park()
        if self.closed:
            raise trio.ClosedResourceError
        data = bytes(self._in.data[:max_bytes])
        if not data and self._in.cut is not None:
            raise StreamResetError("reset by the peer", self._in.cut)
        del self._in.data[:max_bytes]
        self._in.changed.unpark_all()
        return data

    async def send_eof(self) -> None:
        await trio.lowlevel.checkpoint()
        if not self._out.ended:
            self._check_sendable()
        self._finish()

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        self._finish()
        self.closed = self._in.unwanted = True
        self._in.changed.unpark_all()

    def _finish(self) -> None:
        self._out.ended = True
        self._out.changed.unpark_all()

    def reset(self, code: int = 0) -> None:
        if self.closed:
            return
        for pipe in (self._in, self._out):
            if not (pipe is self._out and pipe.ended):
                pipe.cut = code if pipe.cut is None else pipe.cut
        self.closed = True
        self._in.changed.unpark_all()
        self._out.changed.unpark_all()


def stream_pair(window: int = WINDOW) -> tuple[MemoryStream, MemoryStream]:
    """The caller's end and the provider's."""
    there, back = Pipe(window), Pipe(window)
    return MemoryStream(BOB, Direction.OUTBOUND, back, there), MemoryStream(ALICE, Direction.INBOUND, there, back)


class Mesh:
    """Serves one application at BOB, as the runtime would.

    Attributes:
        streams: every stream that was ever opened, both ends.
        serving: how many are being served now.
    """

    def __init__(self, app: ASGIApp, nursery: trio.Nursery, limits: HttpLimits, window: int) -> None:
        self.streams: list[MemoryStream] = []
        self.serving = 0
        self._protocol = protocol(app, http_limits=limits)
        self._nursery = nursery
        self._window = window

    @property
    def calls(self) -> Calls:
        return Calls(self.open_peer, lambda: CREDENTIAL)

    async def open_peer(self, peer: PeerId) -> Stream:
        await trio.lowlevel.checkpoint()
        if peer != BOB:
            raise DialError(f"nobody is {peer}")
        return self.open_stream()

    def open_stream(self) -> MemoryStream:
        caller, provider = stream_pair(self._window)
        self.streams += [caller, provider]
        self._nursery.start_soon(self._serve, provider)
        return caller

    async def _serve(self, stream: MemoryStream) -> None:
        self.serving += 1
        try:
            await self._protocol.serve(stream)
            await stream.aclose()
        finally:
            stream.reset()
            self.serving -= 1

    @property
    def open_streams(self) -> list[MemoryStream]:
        return [stream for stream in self.streams if not stream.closed]

    async def check_idle(self) -> None:
        """Nothing is left of any request."""
        await wait_all_tasks_blocked()
        assert self.open_streams == []
        assert self.serving == 0


@asynccontextmanager
async def open_mesh(app: ASGIApp, limits: HttpLimits = DEFAULT_LIMITS, window: int = WINDOW) -> AsyncGenerator[Mesh]:
    async with open_background() as nursery:
        yield Mesh(app, nursery, limits, window)
