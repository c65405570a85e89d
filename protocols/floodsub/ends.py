"""What the tasks of one link share: they end together, and know why."""

import attrs
import trio

from agentmesh.errors import StreamResetError
from agentmesh.runtime.guard import Signal


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
