"""One circuit in the relay: two streams, a copy loop for each direction, and the ways it ends.

Each direction ends by itself: the end of one stream becomes the end of the other's sending side. Whatever else stops a
direction cuts the circuit, so that no end waits for the other in vain; both streams are then to be reset.
"""

from contextlib import suppress

import attrs
import trio

from agentmesh.abc import Stream
from agentmesh.errors import ErrorCode, StreamResetError
from agentmesh.protocols.relay.book import CircuitEntry
from agentmesh.protocols.relay.events import CircuitLimits

READ_BYTES = 256 * 1024  # from one end at once; the rest stays in its window, where it is counted


@attrs.define(eq=False)
class Circuit:
    """A circuit from its entry in the book to its end.

    Attributes:
        entry: who talks to whom.
        limits: what it may use.
        scope: everything that is done for it; cancelled when it is cut.
        relayed_bytes: what has been handed on, both directions together.
    """

    entry: CircuitEntry
    limits: CircuitLimits
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    relayed_bytes: int = 0
    _code: int | None = None

    def cut(self, code: int) -> None:
        """End the circuit now. The first cut's code counts."""
        if self._code is None:
            self._code = code
        self.scope.cancel()

    @property
    def reset_code(self) -> int:
        """What the ends of a circuit that did not end by itself are told: why it was cut, or that its time is up."""
        if self._code is not None:
            return self._code
        over = trio.current_time() >= self.scope.deadline
        return ErrorCode.RESOURCE_LIMIT_EXCEEDED if over else ErrorCode.NO_ERROR

    async def carry(self, near: Stream, far: Stream, early_near: bytes, early_far: bytes) -> None:
        """Carry bytes until both directions have ended. To be run within `scope`, which ends it when it is cut.

        Args:
            near, far: the two ends.
            early_near, early_far: what each end has sent already.
        """
        if self.limits.max_duration:
            self.scope.deadline = trio.current_time() + self.limits.max_duration
        to_near, to_far = trio.CancelScope(), trio.CancelScope()
        async with trio.open_nursery() as watchers:
            watchers.start_soon(self._watch, near, to_near)
            watchers.start_soon(self._watch, far, to_far)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._copy, near, far, early_near, to_far)
                nursery.start_soon(self._copy, far, near, early_far, to_near)
            watchers.cancel_scope.cancel()
        await trio.lowlevel.checkpoint()  # a cut by the last copy loop ends here

    async def _watch(self, end: Stream, towards: trio.CancelScope) -> None:
        """Cut the circuit when one end is cut, or only the direction `towards` it when it had finished its own before.

        Nobody reads from an end while the other takes no bytes, so that no copy loop would hear of it.
        """
        error = await end.wait_broken()
        if isinstance(error, StreamResetError) and error.finished:
            towards.cancel()
        else:
            self.cut(_code_of(error))

    async def _copy(self, source: Stream, sink: Stream, early: bytes, scope: trio.CancelScope) -> None:
        left = self.limits.max_bytes or float("inf")
        with scope, suppress(trio.BrokenResourceError):  # the end that broke is being watched
            data = early or await source.receive_some(READ_BYTES)
            while data:
                if len(data) > left:
                    await self._hand_on(sink, data[: int(left)])
                    self.cut(ErrorCode.RESOURCE_LIMIT_EXCEEDED)
                    return
                left -= len(data)
                await self._hand_on(sink, data)
                data = await source.receive_some(READ_BYTES)
            await sink.send_eof()

    async def _hand_on(self, sink: Stream, data: bytes | bytearray | memoryview) -> None:
        await sink.send_all(data)
        self.relayed_bytes += len(data)


def _code_of(error: trio.BrokenResourceError) -> int:
    """What the other end is told: what this one said, if it said anything."""
    return error.code if isinstance(error, StreamResetError) else ErrorCode.NO_ERROR
