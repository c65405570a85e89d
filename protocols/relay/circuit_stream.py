"""A circuit as either of its ends has it, when a stream carries it."""

import trio

from agentmesh.abc import NowaitSender, Stream
from agentmesh.errors import ErrorCode
from agentmesh.protocols.relay.events import CircuitLimits
from agentmesh.runtime.direct import nowait_sender
from agentmesh.types import PeerId


class CircuitStream(trio.abc.HalfCloseableStream, NowaitSender):
    """A circuit's bytes, as either of its ends has them.

    Attributes:
        peer: who the relay says is at the other end. Its word only: prove it (TLS) before you rely on it.
        relay: whom the circuit goes through.
        limits: what the circuit may use, as the relay said.

    Errors, cancellation: as `agentmesh.abc.Stream`; a relay that cuts the circuit resets it with an ErrorCode.
    """

    def __init__(self, stream: Stream, early: bytes, peer: PeerId, limits: CircuitLimits) -> None:
        self.peer = peer
        self.limits = limits
        self._stream = stream
        self._early = early
        self._send_nowait = nowait_sender(stream)

    @property
    def relay(self) -> PeerId:
        return self._stream.peer

    @property
    def is_spliced(self) -> bool:
        """Whether it has a connection of its own, beside the stream."""
        return False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    def send_nowait(self, data: bytes | memoryview) -> int:
        return self._send_nowait(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if not self._early:
            return await self._stream.receive_some(max_bytes)
        await trio.lowlevel.checkpoint()
        cut = len(self._early) if max_bytes is None else max_bytes
        data, self._early = self._early[:cut], self._early[cut:]
        return data

    async def aclose(self) -> None:
        self._early = b""
        await self._stream.aclose()

    def reset(self, code: int = ErrorCode.NO_ERROR) -> None:
        """Cut both directions now, for the other end too."""
        self._early = b""
        self._stream.reset(code)
