"""Changes that share a commit: each is by itself, and nobody is told before the disk has all of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import OperationalError
from trio.testing import wait_all_tasks_blocked

from agentmesh.control_plane import commits
from agentmesh.control_plane.commits import SharedCommits, SharedReads
from agentmesh.control_plane.dsn import SqliteFile
from agentmesh.control_plane.engines import for_writing, sqlite_engine


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    engine = for_writing(sqlite_engine(SqliteFile(str(tmp_path / "x.db"))))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE seen (number INTEGER PRIMARY KEY)"))
    return engine


class Recorder:
    """Counts the commits of an engine."""

    def __init__(self, engine: Engine) -> None:
        self.commits = 0
        event.listen(engine, "commit", self._count)

    def _count(self, _: Connection) -> None:
        self.commits += 1


def note(number: int) -> Callable[[Connection], int]:
    def job(connection: Connection) -> int:
        connection.execute(text("INSERT INTO seen VALUES (:number)"), {"number": number})
        return number

    return job


def noted(engine: Engine) -> list[int]:
    with engine.begin() as connection:
        return list(connection.execute(text("SELECT number FROM seen ORDER BY number")).scalars())


async def test_those_that_wait_together_are_committed_together(engine: Engine) -> None:
    shared, threads, recorder = SharedCommits(engine), trio.CapacityLimiter(4), Recorder(engine)
    results = list[int]()

    async def run(number: int) -> None:
        results.append(await shared.run(note(number), threads))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(run, number)
    assert sorted(results) == noted(engine) == list(range(20))
    assert recorder.commits <= 3  # the first, all that came meanwhile, and the reading here
    engine.dispose()


async def test_no_more_than_so_many_share_one(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "MAX_JOBS", 5)
    shared, threads, recorder = SharedCommits(engine), trio.CapacityLimiter(4), Recorder(engine)
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(shared.run, note(number), threads)
    assert recorder.commits >= 4
    assert noted(engine) == list(range(20))
    engine.dispose()


async def test_one_that_raises_leaves_nothing_and_does_not_reach_the_others(engine: Engine) -> None:
    shared, threads = SharedCommits(engine), trio.CapacityLimiter(4)
    raised = list[type[BaseException]]()

    def broken(connection: Connection) -> None:
        note(100)(connection)
        raise LookupError("a bug")

    async def run(job: Callable[[Connection], object]) -> None:
        try:
            await shared.run(job, threads)
        except (LookupError, OperationalError) as exc:
            raised.append(type(exc))

    def nonsense(connection: Connection) -> None:
        connection.execute(text("nonsense"))

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(run, note(number))
            nursery.start_soon(run, broken)
            nursery.start_soon(run, nonsense)
    assert sorted(kind.__name__ for kind in raised) == ["LookupError"] * 3 + ["OperationalError"] * 3
    assert noted(engine) == [0, 1, 2]
    engine.dispose()


async def test_a_commit_that_fails_fails_for_all_in_it(engine: Engine) -> None:
    shared, threads, failed = SharedCommits(engine), trio.CapacityLimiter(4), 0

    def refuse(_: Connection) -> None:
        raise OperationalError("COMMIT", None, Exception("the disk is full"))

    async def run(number: int) -> None:
        nonlocal failed
        with pytest.raises(OperationalError, match="the disk is full"):
            await shared.run(note(number), threads)
        failed += 1

    event.listen(engine, "commit", refuse)
    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(run, number)
    event.remove(engine, "commit", refuse)
    assert failed == 5
    assert noted(engine) == []
    assert await shared.run(note(7), threads) == 7
    assert noted(engine) == [7]
    engine.dispose()


async def test_who_is_cancelled_while_it_waits_has_changed_nothing(engine: Engine) -> None:
    shared, threads = SharedCommits(engine), trio.CapacityLimiter(1)
    scope = trio.CancelScope()

    async def run_cancelled() -> None:
        with scope:
            await shared.run(note(3), threads)

    await threads.acquire_on_behalf_of(engine)  # the first has its turn, and no thread
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shared.run, note(1), threads)
        await wait_all_tasks_blocked()
        nursery.start_soon(shared.run, note(2), threads)
        nursery.start_soon(run_cancelled)
        await wait_all_tasks_blocked()
        scope.cancel()
        await wait_all_tasks_blocked()
        threads.release_on_behalf_of(engine)
    assert noted(engine) == [1, 2]
    engine.dispose()


async def test_who_is_cancelled_in_its_turn_carries_the_others_through(engine: Engine) -> None:
    shared, threads = SharedCommits(engine), trio.CapacityLimiter(1)
    scope = trio.CancelScope()

    async def run_cancelled() -> None:
        with scope:
            await shared.run(note(1), threads)

    await threads.acquire_on_behalf_of(engine)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_cancelled)
        await wait_all_tasks_blocked()
        nursery.start_soon(shared.run, note(2), threads)
        await wait_all_tasks_blocked()
        scope.cancel()
        await wait_all_tasks_blocked()
        threads.release_on_behalf_of(engine)
    assert noted(engine) == [1, 2]
    engine.dispose()


async def test_those_that_wait_together_read_one_snapshot(engine: Engine) -> None:
    looks, threads, first = list[int](), trio.CapacityLimiter(4), trio.Event()

    def look(connection: Connection) -> int:
        looks.append(0)
        return len(looks)

    shared, found = SharedReads(engine, look), list[tuple[int, int]]()  # looks and rows

    def count(connection: Connection) -> int:
        return len(list(connection.execute(text("SELECT number FROM seen")).scalars()))

    async def read() -> None:
        pair: Any = await shared.run(count, threads)
        found.append(pair)
        first.set()

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(read)
        await first.wait()
    assert len(looks) <= 2  # the first comer's, and that of all who came meanwhile
    assert sorted(found) == [(1, 0)] * found.count((1, 0)) + [(2, 0)] * found.count((2, 0))
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO seen VALUES (1)"))
    await read()
    assert found[-1] == (len(looks), 1)


async def test_a_reading_that_raises_does_not_reach_the_others(engine: Engine) -> None:
    shared, threads = SharedReads(engine, lambda _: None), trio.CapacityLimiter(4)
    found = list[object]()

    def fail(_: Connection) -> None:
        raise LookupError("by itself")

    async def read(job: Callable[[Connection], object]) -> None:
        try:
            found.append(await shared.run(job, threads))
        except LookupError as exc:
            found.append(str(exc))

    def succeed(_: Connection) -> int:
        return 1

    async with trio.open_nursery() as nursery:
        for job in (fail, succeed, fail, succeed):
            nursery.start_soon(read, job)
    assert sorted(map(str, found)) == ["(None, 1)", "(None, 1)", "by itself", "by itself"]
