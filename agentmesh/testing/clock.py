"""Runs on a virtual clock that are the same every time."""

# pyright: reportPrivateUsage=false
# Trio keeps the order in which tasks run to itself; pytest-trio reaches for it in the same way.

import random
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar, TypeVarTuple

import trio
import trio.testing
from trio._core import _run as scheduler

T = TypeVar("T")
Args = TypeVarTuple("Args")


def run(async_fn: Callable[[*Args], Awaitable[T]], *args: *Args, seed: int = 0) -> T:
    """`trio.run` on a virtual clock, with tasks scheduled in an order that `seed` decides.

    Sleeping takes no time: as soon as every task waits, the clock jumps to the next deadline. With the same seed, and a
    `MemoryNetwork` as the only world outside, a run does the same things in the same order at the same times.

    Args:
        async_fn: what to run.
        args: its arguments.
        seed: of the schedule; another one tries another order.
    Returns:
        What `async_fn` returns.
    """
    with deterministic_schedule(seed):
        return trio.run(async_fn, *args, clock=trio.testing.MockClock(autojump_threshold=0))


@contextmanager
def deterministic_schedule(seed: int) -> Generator[None]:
    """Within the block, Trio's order of running tasks depends on `seed` alone and not on chance."""
    chance, ordered = scheduler._r, scheduler._ALLOW_DETERMINISTIC_SCHEDULING
    scheduler._r, scheduler._ALLOW_DETERMINISTIC_SCHEDULING = random.Random(seed), True  # type: ignore[misc]
    try:
        yield
    finally:
        scheduler._r, scheduler._ALLOW_DETERMINISTIC_SCHEDULING = chance, ordered  # type: ignore[misc]
