"""The database behind the store: an engine, worker threads, transactions.

SQLite for now. What is SQLite's own is in this file; the store speaks SQL that PostgreSQL understands too.
"""

import os
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from agentmesh.control_plane.config import sqlite_path
from agentmesh.control_plane.schema import metadata
from agentmesh.errors import MeshError

MAX_THREADS = 4  # that talk to the database at once; a connection each
BUSY_TIMEOUT = 5.0  # seconds that a writer waits for another
PRAGMAS = (
    "PRAGMA journal_mode=WAL",  # readers never wait for the writer
    "PRAGMA synchronous=FULL",  # what was acknowledged survives a power cut
)

T = TypeVar("T")


class StoreError(MeshError):
    """The database does not answer, or not in time. Nothing of the call was kept; try again later."""


class Database:
    """Runs jobs on a connection, each in one transaction and in a worker thread.

    Cancellation: a job that has begun is finished; the caller is cancelled after it.
    """

    def __init__(self, engine: Engine) -> None:
        self._read_from = engine
        self._write_to = engine.execution_options(mesh_begin="BEGIN IMMEDIATE")
        self._threads = trio.CapacityLimiter(MAX_THREADS)

    async def read(self, job: Callable[[Connection], T]) -> T:
        """Run `job` on a snapshot. Raises StoreError."""
        return await self._run(self._read_from, job)

    async def write(self, job: Callable[[Connection], T]) -> T:
        """Run `job` and commit; when it raises, nothing of it is kept. Raises StoreError."""
        return await self._run(self._write_to, job)

    async def _run(self, engine: Engine, job: Callable[[Connection], T]) -> T:
        def run() -> T:
            with engine.begin() as connection:
                return job(connection)

        try:
            return await trio.to_thread.run_sync(run, limiter=self._threads)
        except SQLAlchemyError as exc:
            raise StoreError("the database does not answer") from exc

    async def aclose(self) -> None:
        await trio.to_thread.run_sync(self._read_from.dispose)


@asynccontextmanager
async def open_database(dsn: str) -> AsyncGenerator[Database]:
    """Open the database and create the tables that are missing.

    Args:
        dsn: a file, as a path or as sqlite:///path. It is created readable by its owner only: it holds signing keys.
    Raises:
        ValueError: `dsn` does not name an SQLite file.
        OSError: the file can be neither opened nor created.
        StoreError: it is no database.
    """
    path = sqlite_path(dsn)
    await trio.to_thread.run_sync(_touch, path)
    database = Database(_sqlite_engine(path))
    try:
        await database.write(metadata.create_all)
        yield database
    finally:
        with trio.CancelScope(shield=True):  # bounded: no job of ours is running any more
            await database.aclose()


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _sqlite_engine(path: str) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=path),
        connect_args={"timeout": BUSY_TIMEOUT},
        pool_size=MAX_THREADS,
        max_overflow=0,
        hide_parameters=True,  # they hold keys and credentials, and errors print them
    )
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def _configure(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    assert isinstance(connection, sqlite3.Connection)
    connection.isolation_level = None  # the driver starts no transactions of its own: `_begin` does
    for pragma in PRAGMAS:
        connection.execute(pragma)


def _begin(connection: Connection) -> None:
    # A transaction that reads before it writes must take the write lock first, or SQLite refuses the write.
    connection.execute(text(connection.get_execution_options().get("mesh_begin", "BEGIN")))
