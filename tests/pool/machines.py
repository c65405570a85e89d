"""Hypothesis' state machines whose world is a Trio run: it goes on while a rule does, in virtual time."""

import queue
import random
import secrets
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from typing import Generic, TypeVar

import outcome
import pytest
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis.stateful import RuleBasedStateMachine
from trio.testing import MockClock, wait_all_tasks_blocked

from agentmesh.identity import Identity
from agentmesh.testing.clock import deterministic_schedule

T = TypeVar("T")
W = TypeVar("W")
PATIENCE = 3600.0  # virtual seconds that one step may take
STUCK = 120.0  # seconds in which a run does nothing, and then it never will


@contextmanager
def names_by_seed(seed: int = 0) -> Generator[None]:
    """Keys, IDs and names that are chosen by chance are the same every time: a history can be replayed."""
    rng = random.Random(seed)

    def generate(cls: type[Identity]) -> Identity:
        return cls(Ed25519PrivateKey.from_private_bytes(rng.randbytes(32)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "_sysrand", rng)
        patch.setattr(Identity, "generate", classmethod(generate))
        yield


class TrioMachine(RuleBasedStateMachine, Generic[W]):
    """Rules call `do`; between two of them nothing happens, and no time passes."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._asked, self._requests = trio.open_memory_channel[Callable[[], Awaitable[None]] | None](1)
        self._ended: outcome.Outcome[None] | None = None
        self._worlds: list[W] = []
        self._fixed = ExitStack()
        self._fixed.enter_context(deterministic_schedule(0))
        self._fixed.enter_context(names_by_seed())
        trio.lowlevel.start_guest_run(
            self._run,
            run_sync_soon_threadsafe=self._jobs.put,
            run_sync_soon_not_threadsafe=self._jobs.put,
            done_callback=self._done,
            host_uses_signal_set_wakeup_fd=True,
            clock=MockClock(autojump_threshold=0),
        )
        self._pump(lambda: bool(self._worlds))

    @abstractmethod
    def open_world(self) -> AbstractAsyncContextManager[W]:
        """What there is while the machine runs."""

    @property
    def world(self) -> W:
        return self._worlds[0]

    def do(self, step: Callable[[], Awaitable[T]]) -> T:
        """Have something done, and then everything that comes of it at once. Returns what it returns, or raises it."""
        results: list[outcome.Outcome[T]] = []

        async def attempt() -> None:
            results.append(await outcome.acapture(self._settle, step))

        self._asked.send_nowait(attempt)
        self._pump(lambda: bool(results))
        return results[0].unwrap()

    @staticmethod
    async def _settle(step: Callable[[], Awaitable[T]]) -> T:
        with trio.fail_after(PATIENCE):
            found = await step()
            await wait_all_tasks_blocked()
            return found

    async def _run(self) -> None:
        async with self.open_world() as world:
            self._worlds.append(world)
            while (request := await self._requests.receive()) is not None:
                await request()

    def _done(self, result: outcome.Outcome[None]) -> None:
        self._ended = result

    def _pump(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            if self._ended is not None:
                self._ended.unwrap()
                raise AssertionError("the run is over")
            self._jobs.get(timeout=STUCK)()

    def teardown(self) -> None:
        try:
            if self._ended is None:
                self._asked.send_nowait(None)
                self._pump(lambda: self._ended is not None)
            assert self._ended is not None
            self._ended.unwrap()
        finally:
            self._fixed.close()
