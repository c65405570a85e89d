"""The registry's transactions in worker threads, on any of the databases; errors of ours for the drivers'."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import trio
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, NotSupportedError, ProgrammingError, SQLAlchemyError

from agentmesh.control_plane.commits import SharedCommits
from agentmesh.control_plane.dsn import SqliteFile
from agentmesh.control_plane.engines import (
    ANSWER_TIMEOUT,
    SQLITE_CONNECTIONS,
    for_writing,
    postgres_engine,
    sqlite_engine,
)
from agentmesh.errors import MissingExtraError
from agentmesh.pool.registry.dsn import MysqlDatabase, SqlDsn
from agentmesh.pool.registry.errors import RegistryRefusedError, RegistryUnavailableError

SERVER_CONNECTIONS = 16  # of one router to a server: the most changes that wait for it at once
LOCK_TIMEOUT = 5  # seconds that MySQL has a change wait for another
LOCK_NAME = "agentmesh_agent_connections"  # held while the tables are made
LOCK_NUMBER = 7345893  # the same, of PostgreSQL's

RACES = frozenset({"40001", "40P01", 1213})  # PostgreSQL's serialization failure and deadlock, MySQL's deadlock

# The session speaks UTC, so that no hour comes twice, and cuts no number to fit.
MYSQL_SESSION = f"SET SESSION time_zone = '+00:00', sql_mode = 'TRADITIONAL', innodb_lock_wait_timeout = {LOCK_TIMEOUT}"

T = TypeVar("T")
Job = Callable[[Connection], T]
Run = Callable[[Job[Any], trio.CapacityLimiter], Awaitable[Any]]


class SqlDatabase:
    """Runs jobs, each in one transaction. Made by `open_sql_database`.

    Attributes:
        dialect: as SQLAlchemy names it.
        max_races: times that a job is run anew because the database chose it to give way to another.

    Cancellation: a job that has begun is carried through; the caller is cancelled after it.
    """

    def __init__(self, engine: Engine, write: Run, connections: int) -> None:
        self.dialect = engine.dialect.name
        self.max_races = 20
        self._engine, self._write = engine, write
        self._threads = trio.CapacityLimiter(connections)

    async def read(self, job: Job[T]) -> T:
        """Raises RegistryUnavailableError, RegistryRefusedError."""
        return await self._until_settled(partial(_run, self._engine), job)

    async def write(self, job: Job[T]) -> T:
        """Run `job` and commit; when it raises, nothing of it is kept. It may be run several times.

        Raises:
            RegistryUnavailableError: the database does not answer, or `max_races` others were faster.
            RegistryRefusedError: the tables are not those that we know.
        """
        return await self._until_settled(self._write, job)

    async def _until_settled(self, run: Run, job: Job[T]) -> T:
        for _ in range(self.max_races):
            try:
                result: T = await run(job, self._threads)
            except DBAPIError as exc:
                if not _is_race(exc):
                    raise _translated(exc) from exc
            except SQLAlchemyError as exc:  # no connection became free
                raise RegistryUnavailableError("the database does not answer") from exc
            else:
                return result
        raise RegistryUnavailableError("too many callers change the same at once")

    async def aclose(self) -> None:
        await trio.to_thread.run_sync(self._engine.dispose)


def _is_race(error: DBAPIError) -> bool:
    cause: Any = error.orig
    code = getattr(cause, "sqlstate", None) or next(iter(cause.args), None)
    return code in RACES or isinstance(error, IntegrityError)


def _translated(error: DBAPIError) -> RegistryUnavailableError | RegistryRefusedError:
    if isinstance(error, ProgrammingError | DataError | NotSupportedError):
        return RegistryRefusedError(f"the database does not take what a registry writes: {type(error.orig).__name__}")
    lines = str(error.orig).splitlines()
    return RegistryUnavailableError(": ".join(["the database does not answer", *lines[:1]]))  # drivers name no password


async def _run(engine: Engine, job: Job[T], threads: trio.CapacityLimiter) -> T:
    def run() -> T:
        with engine.begin() as connection:
            return job(connection)

    return await trio.to_thread.run_sync(run, limiter=threads)


@asynccontextmanager
async def open_sql_database(dsn: SqlDsn) -> AsyncGenerator[SqlDatabase]:
    """Raises MissingExtraError when the driver is not installed, OSError when SQLite's file cannot be opened."""
    database = await trio.to_thread.run_sync(_connect, dsn)
    try:
        yield database
    finally:
        with trio.CancelScope(shield=True):  # bounded: no job runs any more
            await database.aclose()


def _connect(dsn: SqlDsn) -> SqlDatabase:
    if isinstance(dsn, SqliteFile):
        engine = sqlite_engine(dsn)
        return SqlDatabase(engine, SharedCommits(for_writing(engine)).run, SQLITE_CONNECTIONS)
    engine = _mysql_engine(dsn) if isinstance(dsn, MysqlDatabase) else postgres_engine(dsn)
    return SqlDatabase(engine, partial(_run, engine), SERVER_CONNECTIONS)


def _mysql_engine(database: MysqlDatabase) -> Engine:
    timeout = round(ANSWER_TIMEOUT)
    try:
        return create_engine(
            database.url,
            connect_args={
                "connect_timeout": timeout,
                "read_timeout": timeout,
                "write_timeout": timeout,
                "init_command": MYSQL_SESSION,
            },
            pool_size=SERVER_CONNECTIONS,
            max_overflow=0,
            pool_pre_ping=True,  # a server that was restarted is not an error of the first calls after
            isolation_level="READ COMMITTED",  # changes are conditional statements: they see what was committed last
            hide_parameters=True,
        )
    except ModuleNotFoundError as exc:
        raise MissingExtraError("a MySQL or MariaDB database needs its driver: pip install 'agentmesh[mysql]'") from exc


def while_tables_are_made(connection: Connection, make: Job[T]) -> T:
    """Run `make` while no other router makes the same tables. On SQLite the transaction itself is a lock."""
    match connection.dialect.name:
        case "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK_NUMBER})
        case "mysql":  # whose every CREATE TABLE commits
            got = connection.execute(text("SELECT GET_LOCK(:lock, :wait)"), {"lock": LOCK_NAME, "wait": LOCK_TIMEOUT})
            if got.scalar_one() != 1:
                raise RegistryUnavailableError("another router is making the tables")
            try:
                return make(connection)
            finally:
                connection.execute(text("SELECT RELEASE_LOCK(:lock)"), {"lock": LOCK_NAME})
        case _:
            pass
    return make(connection)
