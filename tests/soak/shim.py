"""A TCP proxy that does harm: what lies between the members and the routers of a soak on real sockets."""

import enum
import math
import random
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress

import trio

CHUNK_BYTES = 16 * 1024
GARBLED_BYTES = 16  # of a chunk, at most
SLOW_PIECE_BYTES = 1024  # sent at once over a slow path
ABRUPTLY = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset


class Fate(enum.Enum):
    """What becomes of the bytes of one direction."""

    CARRIED = "carried"
    DROPPED = "dropped"


class Pump:
    """One direction of a connection.

    Attributes:
        fate: what becomes of its bytes.
        bytes_per_second: how fast they go.
    """

    def __init__(self, source: trio.SocketStream, sink: trio.SocketStream, chance: random.Random) -> None:
        self.fate = Fate.CARRIED
        self.bytes_per_second = math.inf
        self._source = source
        self._sink = sink
        self._chance = chance
        self._garbles = False
        self._flows = trio.Event()
        self._flows.set()

    async def run(self) -> None:
        """Carry bytes, and the end behind them. Raises BrokenResourceError when an end is gone."""
        while data := bytes(await self._source.receive_some(CHUNK_BYTES)):
            await self._flows.wait()
            await self._pass_on(self._damaged(data))
        await self._flows.wait()
        if self.fate is Fate.CARRIED:
            await self._sink.send_eof()

    async def _pass_on(self, data: bytes) -> None:
        while data and self.fate is Fate.CARRIED:
            size = len(data) if self.bytes_per_second == math.inf else SLOW_PIECE_BYTES
            piece, data = data[:size], data[size:]
            await self._sink.send_all(piece)
            await trio.sleep(len(piece) / self.bytes_per_second)

    def _damaged(self, data: bytes) -> bytes:
        if not self._garbles:
            return data
        self._garbles = False
        at = self._chance.randrange(len(data))
        noise = self._chance.randbytes(min(GARBLED_BYTES, len(data) - at))
        changed = bytes(byte ^ (other | 1) for byte, other in zip(data[at:], noise, strict=False))
        return data[:at] + changed + data[at + len(changed) :]

    def freeze(self) -> None:
        if self._flows.is_set():
            self._flows = trio.Event()

    def thaw(self) -> None:
        self._flows.set()

    def garble(self) -> None:
        """Damage what comes next."""
        self._garbles = True

    def end(self) -> None:
        """Tell the reader that this was all; the writer is not told, and what it sends vanishes."""
        if self.fate is Fate.CARRIED:
            self.fate = Fate.DROPPED
            with suppress(OSError):  # the reader is gone already
                self._sink.socket.shutdown(trio.socket.SHUT_WR)


class Passage:
    """One connection through the shim.

    Attributes:
        inwards: what the dialer sends.
        outwards: what it is sent.
    """

    def __init__(self, near: trio.SocketStream, far: trio.SocketStream, chance: random.Random) -> None:
        self.inwards = Pump(near, far, chance)
        self.outwards = Pump(far, near, chance)
        self._streams = (near, far)
        self._scope = trio.CancelScope()

    @property
    def pumps(self) -> Sequence[Pump]:
        return (self.inwards, self.outwards)

    async def run(self) -> None:
        """Until both directions have ended, or one breaks: then both ends get a reset."""
        with self._scope:
            try:
                async with trio.open_nursery() as nursery:
                    for pump in self.pumps:
                        nursery.start_soon(pump.run)
            except* trio.BrokenResourceError:
                self.reset()

    def reset(self) -> None:
        """Break the connection, for both ends."""
        for stream in self._streams:
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABRUPTLY)
        self._scope.cancel()

    def forget(self) -> None:
        """Carry nothing more; nobody is told."""
        for pump in self.pumps:
            pump.fate = Fate.DROPPED


class Shim:
    """Listens on a port of its own, and connects to another for whoever comes.

    Args:
        listener: bound already.
        chance: of the garbage.

    Attributes:
        target: the port that connections go on to; 0 closes them at once.
        passages: the connections there are.
    """

    def __init__(self, listener: trio.SocketListener, chance: random.Random) -> None:
        self.target = 0
        self.passages: dict[Passage, None] = {}
        self._listener = listener
        self._chance = chance

    @property
    def port(self) -> int:
        port: int = self._listener.socket.getsockname()[1]
        return port

    async def serve(self) -> None:
        """Until cancelled."""
        await trio.serve_listeners(self._pass, [self._listener])

    async def _pass(self, near: trio.SocketStream) -> None:
        async with near:
            try:
                far = await trio.open_tcp_stream("127.0.0.1", self.target)
            except OSError:
                return
            async with far:
                passage = Passage(near, far, self._chance)
                self.passages[passage] = None
                try:
                    await passage.run()
                finally:
                    del self.passages[passage]


async def open_shim(chance: random.Random) -> Shim:
    """A shim on a free port; `serve` closes it."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    return Shim(listener, chance)
