"""The stream beside a spliced circuit: how the circuit's bytes end, for both the relay and its peers.

A connection that ends does not say why. So its end counts as the end of the bytes only when the stream has ended too,
and a reset of the stream carries the code; a process that dies or a middle box that gives up ends nothing properly.
"""

import trio

from agentmesh.abc import Stream
from agentmesh.errors import RemoteProtocolError

WORD_TIMEOUT = 15.0  # seconds that the stream may be behind the connection


class Control:
    """One side of such a stream.

    Attributes:
        stream: the stream.
        finished: the other side has ended it: all its bytes are, or will be, on the connection.
        error: why the circuit broke, once it has.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.finished = False
        self.error: trio.BrokenResourceError | None = None
        self._word = trio.Event()

    async def listen(self) -> trio.BrokenResourceError:
        """Take what the stream says, for as long as the circuit lives.

        Returns:
            As `Stream.wait_broken`.
        Raises:
            ClosedResourceError: it was closed on this side.
            RemoteProtocolError: there were bytes on it.
        """
        try:
            if await self.stream.receive_some():
                raise RemoteProtocolError("bytes on the stream beside a spliced circuit")
            self.finished = True
            self._word.set()
            self.error = await self.stream.wait_broken()
        except trio.BrokenResourceError as exc:
            self.error = exc
        finally:
            self._word.set()
        return self.error

    async def wait_word(self) -> None:
        """Until the stream has said how it ends; WORD_TIMEOUT seconds at most. Somebody has to listen."""
        with trio.move_on_after(WORD_TIMEOUT):
            await self._word.wait()
