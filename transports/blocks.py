"""What the transports share: the life of a connection as a block, and of the tasks that serve it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from agentmesh.abc import ByteStream, StreamHandler
from agentmesh.types import Address


@asynccontextmanager
async def open_block_nursery() -> AsyncGenerator[trio.Nursery]:
    """A nursery for the tasks of one connection, cancelled at the end of the block.

    An exception of the block leaves it as it is, not in an ExceptionGroup: whoever wrote `async with transport.dial(…)`
    need not know that this transport has tasks of its own. Several failures at once still make a group.
    """
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            finally:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        _, failures = group.split(trio.Cancelled)
        if failures is None or len(failures.exceptions) != 1:
            raise
        failure = failures.exceptions[0]
    else:
        return
    raise failure


async def run_handler(handler: StreamHandler, stream: ByteStream, source: Address | None) -> None:
    """One accepted connection: open for as long as its handler runs."""
    async with stream:
        await handler(stream, source)
