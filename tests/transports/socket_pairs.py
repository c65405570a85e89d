"""Pairs of connected sockets, and what this process has open."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio


def descriptors() -> int:
    """How many file descriptors are open."""
    return len(os.listdir("/dev/fd"))


@asynccontextmanager
async def connected() -> AsyncGenerator[tuple[trio.SocketStream, trio.SocketStream]]:
    """The two ends of a connection over TCP."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        dialed = await trio.open_tcp_stream(*listener.socket.getsockname())
        accepted = await listener.accept()
    async with dialed, accepted:
        yield dialed, accepted
