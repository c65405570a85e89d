"""Bytes both ways between two streams, each way ended by itself."""

import attrs
import trio

COPY_BYTES = 64 * 1024


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
