"""A nursery for the tasks behind an `async with` block of our own."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def open_background() -> AsyncGenerator[trio.Nursery]:
    """A nursery whose tasks are cancelled at the end of its block, and whose block raises its own exception bare.

    Trio wraps whatever leaves a nursery's block in a group, even when no task had a part in it. A caller of ours who
    wrote `async with open_host(…)` never saw that nursery, and catches what it raised itself as it raised it. When a
    task failed too, the group says so, as in any nursery.
    """
    raised: list[BaseException] = []
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            except BaseException as exc:
                raised.append(exc)
                raise
            finally:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if raised and list(group.exceptions) == raised:
            raise raised[0] from raised[0].__cause__
        raise
