"""Many members in one process."""

import time
from collections.abc import Awaitable, Callable

import trio

from benchmarks.commands import Answer

AT_ONCE = 16  # that attach at the same time


async def attach_many(attach: Callable[[], Awaitable[None]], count: int) -> Answer:
    """Have so many more attach, AT_ONCE at a time, and stay."""
    left = iter(range(count))

    async def attach_some() -> None:
        for _ in left:
            await attach()

    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(min(AT_ONCE, count)):
            nursery.start_soon(attach_some)
    took = time.perf_counter() - began
    return {"members": count, "seconds": took, "members_per_second": count / took}
