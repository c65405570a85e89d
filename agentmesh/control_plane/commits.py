"""Transactions that many callers share.

Changes share a commit: the disk takes milliseconds to confirm one, however much is in it. Readings share a snapshot: to
have a thread begin one costs as much as all that is read in it.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import attrs
import outcome
import trio
from sqlalchemy import Connection, Engine

MAX_JOBS = 64  # in one commit

T = TypeVar("T")


@attrs.define(eq=False)
class _Change:
    job: Callable[[Connection], Any]
    result: outcome.Outcome[Any] | None = None  # once its commit is through, or will not be


class SharedCommits:
    """Runs changes one at a time, for a database that has one writer. Those that wait together are committed together.

    Each is in a savepoint of its own: one that raises leaves nothing, and does not reach the others.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: list[_Change] = []
        self._turn = trio.Lock()

    async def run(self, job: Callable[[Connection], T], threads: trio.CapacityLimiter) -> T:
        """Run `job`, commit, and give what it returned or raise what it, or the commit, raised.

        Cancellation: a change that still waits is not made; one that others' commits took along may be.
        """
        change = _Change(job)
        self._waiting.append(change)
        try:
            async with self._turn:
                if change.result is None:
                    with trio.CancelScope(shield=True):  # the others' changes are in our hands; the database has limits
                        changes, self._waiting = self._waiting[:MAX_JOBS], self._waiting[MAX_JOBS:]
                        await trio.to_thread.run_sync(self._commit, changes, limiter=threads)
        finally:
            if change in self._waiting:
                self._waiting.remove(change)
        assert change.result is not None
        result: T = change.result.unwrap()
        return result

    def _commit(self, changes: list[_Change]) -> None:
        results: list[outcome.Outcome[Any]] = []
        commit = outcome.capture(self._make, changes, results)
        if isinstance(commit, outcome.Error):
            results = [outcome.Error(commit.error) for _ in changes]
        for change, result in zip(changes, results, strict=True):
            change.result = result

    def _make(self, changes: list[_Change], results: list[outcome.Outcome[Any]]) -> None:
        with self._engine.begin() as connection:
            results += [outcome.capture(self._make_one, change.job, connection) for change in changes]

    @staticmethod
    def _make_one(job: Callable[[Connection], T], connection: Connection) -> T:
        with connection.begin_nested():
            return job(connection)


class SharedReads(SharedCommits):
    """Runs readings one at a time. Those that wait together see one snapshot, taken after the last of them came.

    Args:
        look: is called once at its beginning; a reading's result is a pair of what that gave and what it read itself.
    """

    def __init__(self, engine: Engine, look: Callable[[Connection], Any]) -> None:
        super().__init__(engine)
        self._look = look

    def _make(self, changes: list[_Change], results: list[outcome.Outcome[Any]]) -> None:
        with self._engine.begin() as connection:
            looked = self._look(connection)
            results += [outcome.capture(self._with_look, looked, change.job, connection) for change in changes]

    @staticmethod
    def _with_look(looked: Any, job: Callable[[Connection], T], connection: Connection) -> tuple[Any, T]:
        return looked, job(connection)
