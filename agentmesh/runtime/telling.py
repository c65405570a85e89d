"""A stream that we only talk on, without a task for each: for one who has something to say to thousands at once."""

from collections.abc import Callable

import trio

from agentmesh.runtime.stream import MuxStream

OnOver = Callable[[trio.BrokenResourceError], None]


class Telling:
    """One stream, on which nothing is to come but the answer to its negotiation.

    Args:
        stream: ours to talk on.
        on_over: told, once and synchronously, that nothing sent on the stream arrives any more, or that the peer says
            something on it. It must not raise.
    """

    def __init__(self, stream: MuxStream, on_over: OnOver) -> None:
        self.stream = stream
        self._on_over = on_over
        stream.on_news = self._look

    def push(self, data: bytes) -> bool:
        """Take all of it, and send it at once where the peer's link takes it. False where there is no room for it, or
        no stream any more: `stream.send_all` waits for the one, and says the other.
        """
        try:
            return self.stream.push(data)
        except trio.BrokenResourceError as exc:  # it cannot even be opened
            self.end()
            self._on_over(exc)
            return True

    def end(self) -> None:
        """Have nobody told any more. To be called before the stream is closed on this side."""
        self.stream.on_news = None

    def _look(self) -> None:
        self.end()  # or a look that cuts the stream would lead here again
        if (error := self._error()) is None:
            self.stream.on_news = self._look
        else:
            self._on_over(error)

    def _error(self) -> trio.BrokenResourceError | None:
        try:
            if self.stream.receive_nowait():
                return trio.BrokenResourceError("somebody talks on a stream that is ours to talk on")
        except trio.BrokenResourceError as exc:
            return exc
        return self.stream.breakage()
