"""One circuit in the relay: two streams, a copy loop for each direction, and the ways it ends.

Each direction ends by itself: the end of one stream becomes the end of the other's sending side. Whatever else stops a
direction cuts the circuit: both streams are reset, so that no end waits for the other in vain.
"""

import attrs
import trio

from agentmesh.abc import Stream
from agentmesh.errors import ErrorCode, StreamResetError
from agentmesh.protocols.relay.book import CircuitEntry
from agentmesh.protocols.relay.events import CircuitLimits


@attrs.define(eq=False)
class Circuit:
    """A circuit from its entry in the book to its end.

    Attributes:
        entry: who talks to whom.
        limits: what it may use.
        scope: everything that is done for it; cancelled when it is cut.
        relayed_bytes: what has been handed on, both directions together.
        is_cut: whether `cut` was called; operations on the two streams may then raise ClosedResourceError.
    """

    entry: CircuitEntry
    limits: CircuitLimits
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    relayed_bytes: int = 0
    _ends: list[Stream] = attrs.Factory(list[Stream])
    is_cut: bool = False

    def attach(self, end: Stream) -> None:
        """From here on a cut resets this stream too."""
        self._ends.append(end)

    def cut(self, code: int) -> None:
        """End the circuit now: both streams are reset with `code`. The first cut counts."""
        if not self.is_cut:
            self.is_cut = True
            for end in self._ends:
                end.reset(code)
            self.scope.cancel()

    async def carry(self, near: Stream, far: Stream, early_near: bytes, early_far: bytes) -> None:
        """Carry bytes until both directions have ended. To be run within `scope`.

        Args:
            near, far: the two ends, attached.
            early_near, early_far: what each end has sent already.
        """
        if self.limits.max_duration:
            self.scope.deadline = trio.current_time() + self.limits.max_duration
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._copy, near, far, early_near)
            nursery.start_soon(self._copy, far, near, early_far)

    async def _copy(self, source: Stream, sink: Stream, early: bytes) -> None:
        left = self.limits.max_bytes or float("inf")
        try:
            data = early or await source.receive_some()
            while data:
                if len(data) > left:
                    await self._send(sink, data[: int(left)])
                    self.cut(ErrorCode.RESOURCE_LIMIT_EXCEEDED)
                    return
                left -= len(data)
                await self._send(sink, data)
                data = await source.receive_some()
            await sink.send_eof()
        except StreamResetError as exc:
            self.cut(exc.code)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.cut(ErrorCode.NO_ERROR)

    async def _send(self, sink: Stream, data: bytes | bytearray | memoryview) -> None:
        await sink.send_all(data)
        self.relayed_bytes += len(data)
