"""The database behind the store: connections, worker threads, transactions, and errors of ours for the driver's.

What the two kinds do differently is in `engines`; the store speaks SQL that both understand.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import trio
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from agentmesh.control_plane.commits import SharedCommits, SharedReads
from agentmesh.control_plane.dsn import Dsn, SqliteFile, parse_dsn
from agentmesh.control_plane.engines import (
    ANSWER_TIMEOUT,
    POSTGRES_CONNECTIONS,
    SQLITE_CONNECTIONS,
    for_writing,
    on_snapshot,
    postgres_engine,
    sqlite_engine,
)
from agentmesh.control_plane.migrations import MigrationError, migrate
from agentmesh.errors import MeshError

RACES = frozenset({"40001", "40P01"})  # PostgreSQL's serialization failure and deadlock: it chose one to try again

CLOSE_TIMEOUT = ANSWER_TIMEOUT + 1.0  # seconds for jobs that were left to themselves; the database gives up before

T = TypeVar("T")
W = TypeVar("W")
Write = Callable[[Callable[[Connection], Any], trio.CapacityLimiter], Awaitable[Any]]


class StoreError(MeshError):
    """The database does not answer, or not in time. Try again later.

    Nothing of the call was kept, unless the connection broke while a change was being committed: then nobody knows.
    """


class RacedError(MeshError):
    """The row is not what the caller saw: another call changed it. Nothing was kept; read and decide again."""


class Database:
    """Runs jobs on a connection, each in one transaction and in a worker thread. Made by `open_database`.

    Cancellation: a job that has begun is finished; the caller is cancelled after it, or, when the job shares its commit
    with others', at once.
    """

    def __init__(self, engine: Engine, read_from: Engine, write: Write, connections: int) -> None:
        self._engine, self._read_from, self._write = engine, read_from, write
        self._threads = trio.CapacityLimiter(connections)
        self._look: Callable[[Connection], Any] = lambda _: None
        self._note: Callable[[Any], None] = lambda _: None
        self._shared = SharedReads(read_from, lambda connection: self._look(connection))

    def watch(self, look: Callable[[Connection], W], note: Callable[[W], None]) -> None:
        """Have every reading transaction begin with `look`; what that gives goes to `note`, in the caller's thread."""
        self._look, self._note = look, note

    async def read(self, job: Callable[[Connection], T], *, abandon: bool = False) -> T:
        """Run `job` on a snapshot: all it reads is of one moment. Raises StoreError.

        Args:
            abandon: whether a caller that is cancelled leaves at once, and the job to itself.
        """

        def look_and_run(connection: Connection) -> tuple[Any, T]:
            return self._look(connection), job(connection)

        run = partial(_run, self._read_from, abandon=abandon)
        found: tuple[Any, T] = await _translated(run, look_and_run, self._threads)
        self._note(found[0])
        return found[1]

    async def read_together(self, job: Callable[[Connection], T]) -> T:
        """As `read`, on a snapshot that others share who wait at the same time: for what is short, and asked often."""
        found: tuple[Any, T] = await _translated(self._shared.run, job, self._threads)
        self._note(found[0])
        return found[1]

    async def write(self, job: Callable[[Connection], T]) -> T:
        """Run `job` and commit; when it raises, nothing of it is kept.

        Raises:
            RacedError: another call made a row that this one was about to make, or both waited for each other.
            StoreError: the database does not answer.
        """
        result: T = await _translated(self._write, job, self._threads)
        return result

    async def aclose(self) -> None:
        with trio.move_on_after(CLOSE_TIMEOUT):
            for _ in range(int(self._threads.total_tokens)):
                await self._threads.acquire_on_behalf_of(object())  # jobs that were left to themselves end first
        await trio.to_thread.run_sync(self._engine.dispose)


async def _run(
    engine: Engine, job: Callable[[Connection], T], threads: trio.CapacityLimiter, *, abandon: bool = False
) -> T:
    def run() -> T:
        with engine.begin() as connection:
            return job(connection)

    return await trio.to_thread.run_sync(run, limiter=threads, abandon_on_cancel=abandon)


async def _translated(run: Write, job: Callable[[Connection], Any], threads: trio.CapacityLimiter) -> Any:
    try:
        result = await run(job, threads)
    except IntegrityError as exc:
        raise RacedError("another call made the same row") from exc
    except DBAPIError as exc:
        if getattr(exc.orig, "sqlstate", None) in RACES:
            raise RacedError("another call was about to change the same rows") from exc
        raise StoreError("the database does not answer") from exc
    except SQLAlchemyError as exc:
        raise StoreError("the database does not answer") from exc
    except MigrationError as exc:
        raise StoreError(str(exc)) from exc
    return result


@asynccontextmanager
async def open_database(dsn: str) -> AsyncGenerator[Database]:
    """Open the database and bring its tables up to date.

    Args:
        dsn: as for `parse_dsn`. A file is created readable by its owner only: it holds signing keys.
    Raises:
        ValueError: `dsn` names no database; MissingExtraError, one whose driver is not installed.
        OSError: the file can be neither opened nor created.
        StoreError: it is no database, does not answer, or was made by a newer version.
    """
    database = await trio.to_thread.run_sync(_connect, parse_dsn(dsn))
    try:
        await database.write(migrate)
        yield database
    finally:
        with trio.CancelScope(shield=True):  # bounded: a job that still runs has a time limit of its own
            await database.aclose()


def _connect(dsn: Dsn) -> Database:
    if isinstance(dsn, SqliteFile):
        engine = sqlite_engine(dsn)
        return Database(engine, engine, SharedCommits(for_writing(engine)).run, SQLITE_CONNECTIONS)
    engine = postgres_engine(dsn)
    return Database(engine, on_snapshot(engine), partial(_run, engine), POSTGRES_CONNECTIONS)
