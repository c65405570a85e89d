"""Cancel an operation at each of its awaits in turn, and see that nothing of it is left.

    awaits = await cancel_at_every_await(dial_and_hang_up)

`hang_at` is the smaller tool: a stream whose n-th operation never ends.
"""

import functools
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import trio
from trio.testing import wait_all_tasks_blocked

from agentmesh.testing.expect import annotated

DESCRIPTORS = "/dev/fd"  # Linux, macOS and the BSDs: the open file descriptors of this process
SETTLE_INTERVAL = 0.01  # seconds between two looks at what is left


@attrs.frozen
class Footprint:
    """What a Trio run holds: living tasks, and file descriptors of the process."""

    tasks: int
    descriptors: int


def footprint() -> Footprint:
    """The footprint now. `tasks` counts Trio's own as well: compare two, one says nothing."""
    tasks = trio.lowlevel.current_statistics().tasks_living
    return Footprint(tasks, len(os.listdir(DESCRIPTORS)))


async def wait_footprint(expected: Footprint, timeout: float = 10.0) -> None:
    """Wait until no more than `expected` is left: peers may need a moment to see that a connection has ended.

    Raises:
        AssertionError: after `timeout` seconds there still is more.
    """
    with trio.move_on_after(timeout):
        while True:
            await wait_all_tasks_blocked()
            left = footprint()
            if left.tasks <= expected.tasks and left.descriptors <= expected.descriptors:
                return
            await trio.sleep(SETTLE_INTERVAL)
    raise AssertionError(f"left behind: {footprint()}, before: {expected}")


@asynccontextmanager
async def leaves_nothing(timeout: float = 10.0) -> AsyncGenerator[None]:
    """A block after which no task and no file descriptor may be left that was not there before.

    Raises:
        AssertionError: something is left `timeout` seconds after the block.
    """
    before = await _settled_footprint(timeout)
    yield
    await wait_footprint(before, timeout)


async def _settled_footprint(timeout: float) -> Footprint:
    """The footprint once tasks that were about to begin something have begun it."""
    with trio.move_on_after(timeout):
        await wait_all_tasks_blocked()
    return footprint()


async def cancel_at_every_await(
    operation: Callable[[], Awaitable[object]],
    *,
    check: Callable[[], Awaitable[object]] | None = None,
    timeout: float = 30.0,
    max_awaits: int = 2000,
) -> int:
    """Run `operation` again and again, each time cancelled one await later, until a run completes.

    An await is a step of the operation's task, or of a task that it started, which gave control back to Trio: every
    point where a cancellation can strike, also those that do not wait for anything.

    Args:
        operation: what to cancel. It may complete in spite of being cancelled (work that is shielded); it must not
            raise.
        check: awaited after each run, and raises if something is left; by default no task and no file descriptor may
            be there that was not there before.
        timeout: seconds that one run, and one check, may take on Trio's clock: cancelling must not hang.
        max_awaits: how many awaits are believed.
    Returns:
        How many awaits a whole run has.
    Raises:
        AssertionError: something is left, or a run did not end.
        Whatever `operation` raised, with a note that names the await.
    """
    if check is None:
        check = functools.partial(wait_footprint, await _settled_footprint(timeout), timeout)
    for n in range(1, max_awaits + 1):
        with annotated(f"cancelled at await {n}"):
            reached = await _run_cancelled(operation, n, timeout)
            await check()
        if reached < n:
            return reached
    raise AssertionError(f"no run completed within {max_awaits} awaits")


async def _run_cancelled(operation: Callable[[], Awaitable[object]], n: int, timeout: float) -> int:
    """One run, cancelled at its n-th await; how many awaits there were at most n."""
    scope = trio.CancelScope()
    canceller = _Canceller(trio.lowlevel.current_task(), scope, n)
    limit = trio.current_time() + timeout
    with trio.move_on_at(limit), scope:
        trio.lowlevel.add_instrument(canceller)
        try:
            await operation()
        finally:
            trio.lowlevel.remove_instrument(canceller)
    if trio.current_time() >= limit:
        raise AssertionError(f"did not end within {timeout} s")
    return canceller.awaits


class _Canceller(trio.abc.Instrument):
    """Counts the awaits of a task and its descendants, and cancels `scope` at the n-th."""

    def __init__(self, task: trio.lowlevel.Task, scope: trio.CancelScope, n: int) -> None:
        self.awaits = 0
        self._tasks = {task}
        self._scope = scope
        self._n = n

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        if task.parent_nursery is not None and task.parent_nursery.parent_task in self._tasks:
            self._tasks.add(task)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self._tasks.discard(task)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task in self._tasks and self.awaits < self._n:
            self.awaits += 1
            if self.awaits == self._n:
                self._scope.cancel()
