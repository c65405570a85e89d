"""Short ways to a socket, which Trio's own streams do not have: sending without an await, receiving into a buffer that
is there already. A write that the kernel takes at once needs neither a task nor a cancel scope, and a read that fills
the same memory again and again costs no allocation.
"""

import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from agentmesh.abc import BufferReceiver, NowaitSender

SendNowait = Callable[[bytes | memoryview], int]
ReceiveInto = Callable[[memoryview], Awaitable[int]]


def nowait_sender(stream: trio.abc.SendStream) -> SendNowait:
    """`NowaitSender.send_nowait` of any stream; of one that cannot do it, a function that takes nothing."""
    if isinstance(stream, NowaitSender):
        return stream.send_nowait
    if isinstance(stream, trio.SocketStream):
        return partial(send_nowait, stream)
    return _take_nothing


def buffer_receiver(stream: trio.abc.ReceiveStream) -> ReceiveInto | None:
    """`BufferReceiver.receive_into` of a stream; None for one that cannot do it."""
    if isinstance(stream, BufferReceiver):
        return stream.receive_into
    if isinstance(stream, trio.SocketStream) and sys.platform != "win32":
        return partial(receive_into, stream)
    return None


def send_nowait(stream: trio.SocketStream, data: bytes | memoryview) -> int:
    """As `NowaitSender.send_nowait`."""
    if sys.platform == "win32":  # where a socket is no file
        return 0
    try:
        return os.write(stream.socket.fileno(), data)
    except OSError:  # no room; or it is gone
        return 0


async def receive_into(stream: trio.SocketStream, buffer: memoryview) -> int:
    """As `BufferReceiver.receive_into`."""
    while True:
        if (descriptor := stream.socket.fileno()) < 0:
            raise trio.ClosedResourceError("this socket was closed")
        await trio.lowlevel.wait_readable(descriptor)  # even where bytes are there: others have a turn
        try:
            return os.readv(descriptor, [buffer])
        except BlockingIOError:
            continue  # the kernel thought better of it
        except OSError as exc:
            raise trio.BrokenResourceError(f"socket connection broken: {exc}") from exc


def _take_nothing(_: bytes | memoryview) -> int:
    return 0
