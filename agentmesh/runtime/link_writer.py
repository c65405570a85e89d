"""The sending side of a session's link, and how it ends."""

import math
from contextlib import suppress

import trio

from agentmesh.abc import Link
from agentmesh.errors import RemoteProtocolError

FAREWELL_TIMEOUT = 1.0  # seconds that a session which has ended may take to say so


class LinkWriter:
    """Writes to a link for one session.

    After a write that was cut off no other can follow, so the end of the session waits a moment for the one under way.

    Attributes:
        bytes_sent: what the link has taken.
    """

    def __init__(self, link: Link) -> None:
        self.bytes_sent = 0
        self._link = link
        self._until = math.inf
        self._writing = trio.CancelScope()

    async def put(self, data: bytes) -> None:
        """Write; what has begun goes on for FAREWELL_TIMEOUT seconds when it is cancelled or the session ends.

        Raises:
            trio.BrokenResourceError: the link is gone.
        """
        with trio.CancelScope(deadline=self._until, shield=True) as self._writing:
            await self._link.send_all(data)
            self.bytes_sent += len(data)
        await trio.lowlevel.checkpoint_if_cancelled()

    def end(self) -> None:
        """The session has ended: from now on everything has FAREWELL_TIMEOUT seconds."""
        self._until = self._writing.deadline = trio.current_time() + FAREWELL_TIMEOUT

    async def say_farewell(self, data: bytes) -> None:
        """Send the last bytes, if the peer takes them, and close the link. Cancellation: not until that is done."""
        with trio.CancelScope(deadline=self._until, shield=True):
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError, RemoteProtocolError):
                await self._link.send_all(data)
            await self._link.aclose()
