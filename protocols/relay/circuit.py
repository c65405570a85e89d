"""One circuit in the relay: two streams, a copy loop for each direction, and the ways it ends.

Each direction ends by itself: the end of one stream becomes the end of the other's sending side. Whatever else stops a
direction cuts the circuit, so that no end waits for the other in vain; both streams are then to be reset.
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
    """

    entry: CircuitEntry
    limits: CircuitLimits
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    relayed_bytes: int = 0
    _code: int | None = None
    _sending: set[Stream] = attrs.Factory(set[Stream])  # the sources whose bytes a sink has yet to take

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

    async def cut_if_reset(self) -> None:
        """Cut the circuit when an end was reset that nobody reads from now, as the other end takes no more bytes.

        Such a reset would not be heard before those bytes are taken, which may be never.
        """
        for source in tuple(self._sending):
            try:
                with trio.move_on_after(0):
                    await source.wait_send_all_might_not_block()
            except trio.BrokenResourceError as exc:
                self.cut(_code_of(exc))
            except (trio.ClosedResourceError, trio.BusyResourceError):
                continue  # we have ended that way already, or another task hears of it

    async def carry(self, near: Stream, far: Stream, early_near: bytes, early_far: bytes) -> None:
        """Carry bytes until both directions have ended. To be run within `scope`, which ends it when it is cut.

        Args:
            near, far: the two ends.
            early_near, early_far: what each end has sent already.
        """
        if self.limits.max_duration:
            self.scope.deadline = trio.current_time() + self.limits.max_duration
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._copy, near, far, early_near)
            nursery.start_soon(self._copy, far, near, early_far)
        await trio.lowlevel.checkpoint()  # a cut by the last copy loop ends here

    async def _copy(self, source: Stream, sink: Stream, early: bytes) -> None:
        left = self.limits.max_bytes or float("inf")
        try:
            data = early or await source.receive_some()
            while data:
                if len(data) > left:
                    await self._hand_on(source, sink, data[: int(left)])
                    self.cut(ErrorCode.RESOURCE_LIMIT_EXCEEDED)
                    return
                left -= len(data)
                await self._hand_on(source, sink, data)
                data = await source.receive_some()
            await sink.send_eof()
        except trio.BrokenResourceError as exc:
            self.cut(_code_of(exc))

    async def _hand_on(self, source: Stream, sink: Stream, data: bytes | bytearray | memoryview) -> None:
        self._sending.add(source)
        await sink.send_all(data)
        self._sending.discard(source)
        self.relayed_bytes += len(data)


def _code_of(error: trio.BrokenResourceError) -> int:
    """What the other end is told: what this one said, if it said anything."""
    return error.code if isinstance(error, StreamResetError) else ErrorCode.NO_ERROR
