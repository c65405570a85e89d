"""What the tasks of one link share: they end together, and know why."""

import attrs
import trio

from agentmesh.errors import StreamResetError
from agentmesh.runtime.telling import Telling

CLOSE_TIMEOUT = 1.0  # seconds


@attrs.define(eq=False)
class Ends:
    """The tasks of one link, and the stream that we talk on.

    Attributes:
        scopes: each task's.
        ended: the link is gone.
        failure: what the peer said when it cut one of the streams.
        telling: our stream, once it is open.
        waiting: of the task that waits for room in it, when one does.
    """

    scopes: list[trio.CancelScope] = attrs.Factory(list[trio.CancelScope])
    ended: trio.Event = attrs.Factory(trio.Event)
    failure: StreamResetError | None = None
    telling: Telling | None = None
    waiting: trio.CancelScope | None = None

    def cancel(self) -> None:
        self.ended.set()
        for scope in (*self.scopes, *([self.waiting] if self.waiting is not None else [])):
            scope.cancel()

    def note(self, exc: trio.BrokenResourceError) -> None:
        """A stream is broken. Of two that the peer cut, the first says why."""
        if isinstance(exc, StreamResetError) and exc.code and self.failure is None:
            self.failure = exc


async def close(telling: Telling, code: int) -> None:
    """End our stream; reset it when the peer is to know that it did something wrong."""
    telling.end()
    if code:
        telling.stream.reset(code)
        return
    with trio.move_on_after(CLOSE_TIMEOUT) as scope:
        scope.shield = True
        await telling.stream.aclose()
