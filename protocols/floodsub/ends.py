"""What the tasks of one link share: they end together, and know why."""

import attrs
import trio

from agentmesh.abc import Stream
from agentmesh.errors import StreamResetError
from agentmesh.runtime.guard import Signal

CLOSE_TIMEOUT = 1.0  # seconds


@attrs.define(eq=False)
class Ends:
    """The tasks of one link.

    Attributes:
        scopes: each task's.
        wanted: there is something to be sent.
        ended: the link is gone.
        failure: what the peer said when it cut one of the streams.
        is_idle: whether all that was to be sent has been.
    """

    scopes: list[trio.CancelScope] = attrs.Factory(list[trio.CancelScope])
    wanted: Signal = attrs.Factory(Signal)
    ended: trio.Event = attrs.Factory(trio.Event)
    failure: StreamResetError | None = None
    is_idle: bool = False

    def wake(self) -> None:
        self.is_idle = False
        self.wanted.set()

    def cancel(self) -> None:
        self.ended.set()
        for scope in self.scopes:
            scope.cancel()

    def note(self, exc: trio.BrokenResourceError) -> None:
        """A stream is broken. Of two that the peer cut, the first says why."""
        if isinstance(exc, StreamResetError) and exc.code and self.failure is None:
            self.failure = exc


async def wait_over(stream: Stream) -> trio.BrokenResourceError:
    """Until the peer cuts a stream of ours, or says something on it: it has one of its own for that."""
    try:
        if await stream.receive_some():
            return trio.BrokenResourceError("somebody talks on a stream that is ours to talk on")
        return await stream.wait_broken()
    except trio.BrokenResourceError as exc:
        return exc


async def close(stream: Stream, code: int) -> None:
    """End our stream; reset it when the peer is to know that it did something wrong."""
    if code:
        stream.reset(code)
        return
    with trio.move_on_after(CLOSE_TIMEOUT) as scope:
        scope.shield = True
        await stream.aclose()
