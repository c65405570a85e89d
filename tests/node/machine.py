"""State machines of Hypothesis over async code: rules that await, in virtual time, and what goes on between them."""

import queue
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import outcome
import trio
from trio.testing import MockClock

T = TypeVar("T")


class Loop:
    """Trio as a guest of this thread. It runs while `do` waits for something, and stands still in between.

    Args:
        world: the block that everything is done in.
    """

    def __init__(self, world: AbstractAsyncContextManager[object]) -> None:
        self._world = world
        self._jobs: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._scope = trio.CancelScope()
        self._token: trio.lowlevel.TrioToken | None = None
        self._ended: outcome.Outcome[None] | None = None
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._jobs.put,
            done_callback=self._end,
            clock=MockClock(autojump_threshold=0),
        )
        while self._token is None:
            self._step()

    def do(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run it to its end, and all else beside it."""
        results: list[outcome.Outcome[T]] = []

        async def run() -> None:
            results.append(await outcome.acapture(work))

        assert self._token is not None
        self._token.run_sync_soon(self._wanted.send_nowait, run)
        while not results:
            self._step()
        return results[0].unwrap()

    def close(self) -> None:
        """End what was begun."""
        if self._ended is None:
            assert self._token is not None
            self._token.run_sync_soon(self._scope.cancel)
            while self._ended is None:
                self._step()

    def _step(self) -> None:
        """The next thing to do. Raises what ended the block, once."""
        self._jobs.get()()
        if self._ended is not None:
            self._ended.unwrap()

    async def _main(self) -> None:
        self._wanted, wanted = trio.open_memory_channel[Callable[[], Awaitable[None]]](1)
        with self._scope:
            async with self._world:
                self._token = trio.lowlevel.current_trio_token()
                async for work in wanted:
                    await work()

    def _end(self, ended: outcome.Outcome[None]) -> None:
        self._ended = ended
