"""Sending without an await: a write that the kernel takes at once needs neither a task nor a cancel scope."""

import os
import sys
from collections.abc import Callable
from functools import partial

import trio

from agentmesh.abc import NowaitSender

SendNowait = Callable[[bytes | memoryview], int]


def nowait_sender(stream: trio.abc.SendStream) -> SendNowait:
    """`NowaitSender.send_nowait` of any stream; of one that cannot do it, a function that takes nothing."""
    if isinstance(stream, NowaitSender):
        return stream.send_nowait
    if isinstance(stream, trio.SocketStream):
        return partial(send_nowait, stream)
    return _take_nothing


def send_nowait(stream: trio.SocketStream, data: bytes | memoryview) -> int:
    """As `NowaitSender.send_nowait`."""
    if sys.platform == "win32":  # where a socket is no file
        return 0
    try:
        return os.write(stream.socket.fileno(), data)
    except OSError:  # no room; or it is gone
        return 0


def _take_nothing(_: bytes | memoryview) -> int:
    return 0
