"""One circuit in the relay: two streams, or two connections with a stream beside each; and the ways it ends.

Each direction ends by itself: the end of one side's bytes becomes the end of what the other is sent. Whatever else
stops a direction cuts the circuit, so that no end waits for the other in vain; both streams are then to be reset.
"""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial

import attrs
import trio

from agentmesh.abc import Moved, Splicer, Stream
from agentmesh.errors import ErrorCode, RemoteProtocolError, StreamResetError
from agentmesh.protocols.relay.book import CircuitEntry
from agentmesh.protocols.relay.control import Control
from agentmesh.protocols.relay.events import CircuitLimits

READ_BYTES = 256 * 1024  # from one end at once; the rest stays in its window, where it is counted

WaitBroken = Callable[[], Awaitable[trio.BrokenResourceError]]
Move = Callable[[], Awaitable[None]]


@attrs.frozen
class SplicedEnd:
    """An end whose bytes have a connection of their own."""

    control: Control
    connection: trio.abc.HalfCloseableStream


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

    @contextmanager
    def cut_by_errors(self) -> Generator[None]:
        """What the ends do, or the way to them, before there is anything to carry."""
        try:
            yield
        except RemoteProtocolError as exc:
            self.cut(exc.code)
        except trio.BrokenResourceError as exc:
            self.cut(code_of(exc))
        except trio.TooSlowError:
            self.cut(ErrorCode.NO_ERROR)

    async def carry(self, near: Stream, far: Stream, early_near: bytes, early_far: bytes) -> None:
        """Carry bytes until both directions have ended. To be run within `scope`, which ends it when it is cut.

        Args:
            near, far: the two ends.
            early_near, early_far: what each end has sent already.
        """
        there, back = partial(self._copy, near, far, early_near), partial(self._copy, far, near, early_far)
        await self._carry(near.wait_broken, far.wait_broken, there, back)

    async def splice(self, near: SplicedEnd, far: SplicedEnd, splicer: Splicer) -> None:
        """As `carry`, on two connections."""
        there, back = partial(self._splice, near, far, splicer), partial(self._splice, far, near, splicer)
        await self._carry(near.control.listen, far.control.listen, there, back)

    async def _carry(self, near_broken: WaitBroken, far_broken: WaitBroken, there: Move, back: Move) -> None:
        if self.limits.max_duration:
            self.scope.deadline = trio.current_time() + self.limits.max_duration
        to_near, to_far = trio.CancelScope(), trio.CancelScope()
        async with trio.open_nursery() as watchers:
            watchers.start_soon(self._watch, near_broken, to_near)
            watchers.start_soon(self._watch, far_broken, to_far)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_run_in, to_far, there)
                nursery.start_soon(_run_in, to_near, back)
            watchers.cancel_scope.cancel()
        await trio.lowlevel.checkpoint()  # a cut by the last direction ends here

    async def _watch(self, wait_broken: WaitBroken, towards: trio.CancelScope) -> None:
        """Cut the circuit when one end is cut, or only the direction `towards` it when it had finished its own before.

        Nobody reads from an end while the other takes no bytes, so that neither direction would hear of it.
        """
        try:
            error = await wait_broken()
        except RemoteProtocolError as exc:
            self.cut(exc.code)
            return
        if isinstance(error, StreamResetError) and error.finished:
            towards.cancel()
        else:
            self.cut(code_of(error))

    async def _copy(self, source: Stream, sink: Stream, early: bytes) -> None:
        left = self.limits.max_bytes or float("inf")
        with suppress(trio.BrokenResourceError):  # the end that broke is being watched
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
        self._count(len(data))

    async def _splice(self, source: SplicedEnd, sink: SplicedEnd, splicer: Splicer) -> None:
        """A connection that ended or broke is not the last word: that comes on the stream, whose reset is watched."""
        moved = await splicer.move(source.connection, sink.connection, self.limits.max_bytes or None, self._count)
        if moved is Moved.LIMIT:
            self.cut(ErrorCode.RESOURCE_LIMIT_EXCEEDED)
            return
        control = sink.control if moved is Moved.SINK_BROKE else source.control
        await control.wait_word()
        if moved is Moved.SOURCE_BROKE or not control.finished:
            self.cut(ErrorCode.NO_ERROR)
        elif moved is Moved.ENDED:
            with suppress(trio.BrokenResourceError):  # as above
                await sink.connection.send_eof()
                await sink.control.stream.send_eof()

    def _count(self, size: int) -> None:
        self.relayed_bytes += size


async def _run_in(scope: trio.CancelScope, move: Move) -> None:
    with scope:
        await move()


def code_of(error: trio.BrokenResourceError) -> int:
    """What the other end is told: what this one said, if it said anything."""
    return error.code if isinstance(error, StreamResetError) else ErrorCode.NO_ERROR
