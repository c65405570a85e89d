"""How the connection of a circuit is left, so that what was sent on it arrives."""

from contextlib import suppress

import trio

from agentmesh.abc import DataStream

LINGER_TIMEOUT = 2.0  # seconds that a connection stays after it was closed here, so that what was sent arrives …
LINGER_BYTES = 1024 * 1024  # … and what it takes, and throws away, meanwhile

FAILED = (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError)


async def end(data: DataStream) -> None:
    """End what we send, or close it where that cannot be."""
    try:
        await data.send_eof()
    except FAILED:
        data.close_now()


async def linger(data: DataStream) -> None:
    """Take what still comes, to its end. A socket that is closed with bytes unread takes back what it has sent."""
    left = LINGER_BYTES
    with trio.move_on_after(LINGER_TIMEOUT), suppress(*FAILED):
        while left > 0 and (thrown := await data.receive_some()):
            left -= len(thrown)
