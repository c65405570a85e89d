"""Bytes both ways between two streams, each way ended by itself."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
import trio

from agentmesh.abc import Stream
from agentmesh.errors import ErrorCode
from agentmesh.protocols.pool import ACCEPTED, answer_open

COPY_BYTES = 64 * 1024

TargetT = TypeVar("TargetT", bound=trio.abc.HalfCloseableStream)


@attrs.define
class Copied:
    """How many bytes went each way, and whether both ways were ended properly.

    Attributes:
        forth: from the first stream to the second.
    """

    forth: int = 0
    back: int = 0
    is_whole: bool = False

    def count(self, way: int, size: int) -> None:
        """Count bytes of the way there (0) or back (1)."""
        if way:
            self.back += size
        else:
            self.forth += size


async def copy_both_ways(one: trio.abc.HalfCloseableStream, other: trio.abc.HalfCloseableStream) -> Copied:
    """Copy until both ways have ended, or either stream breaks. Neither is closed; the end of each is passed on.

    Returns:
        What was copied. That it is not whole means that a stream broke: cut both, so that nobody takes a part for all.
    Cancellation: bytes may be lost; cut both.
    """
    copied = Copied()
    async with trio.open_nursery() as nursery:
        ways = [False, False]

        async def copy(way: int, source: trio.abc.ReceiveStream, sink: trio.abc.HalfCloseableStream) -> None:
            try:
                while data := await source.receive_some(COPY_BYTES):
                    await sink.send_all(data)
                    copied.count(way, len(data))
                await sink.send_eof()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                nursery.cancel_scope.cancel()
            else:
                ways[way] = True

        nursery.start_soon(copy, 0, one, other)
        nursery.start_soon(copy, 1, other, one)
    copied.is_whole = all(ways)
    return copied


async def accept_and_copy(stream: Stream, target: TargetT, cut: Callable[[TargetT], Awaitable[None]]) -> None:
    """Answer an open that led to a target, and copy until it ends: both sides are closed, or both are cut.

    Args:
        stream: that the open came on; whoever serves it closes it.
        cut: cuts the target.
    Raises:
        BrokenResourceError: the answer could not be sent.
    Cancellation: both are cut.
    """
    try:
        await answer_open(stream, ACCEPTED)
        copied = await copy_both_ways(stream, target)
    except BaseException:
        await cut(target)
        raise
    if copied.is_whole:
        await target.aclose()
    else:
        await cut(target)
        stream.reset(ErrorCode.NO_ERROR)
