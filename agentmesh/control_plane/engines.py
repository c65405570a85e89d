"""What is SQLite's own and what is PostgreSQL's: connections, transactions, waiting for one another."""

import os
import sqlite3
import time

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from agentmesh.control_plane.dsn import PostgresDatabase, SqliteFile
from agentmesh.errors import MissingExtraError

SQLITE_CONNECTIONS = 4  # one of them writes
POSTGRES_CONNECTIONS = 16  # each waits for the disk by itself
BUSY_TIMEOUT = 5.0  # seconds that a writer waits for another
BUSY_LOOK = 0.01  # seconds between two looks at whether the other is done
ANSWER_TIMEOUT = 10.0  # seconds that PostgreSQL has for a statement, and to take a connection
PRAGMAS = (
    "PRAGMA journal_mode=WAL",  # readers never wait for the writer
    "PRAGMA synchronous=FULL",  # what was acknowledged survives a power cut
)


def sqlite_engine(file: SqliteFile) -> Engine:
    """Raises OSError when the file can be neither opened nor created. A new one is its owner's alone: it holds keys."""
    os.close(os.open(file.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    engine = create_engine(
        URL.create("sqlite", database=file.path),
        connect_args={"timeout": BUSY_TIMEOUT},
        pool_size=SQLITE_CONNECTIONS,
        max_overflow=0,
        hide_parameters=True,  # they hold keys and credentials, and errors print them
    )
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def for_writing(engine: Engine) -> Engine:
    """SQLite: a transaction that reads before it writes must take the write lock first, or the write is refused."""
    return engine.execution_options(mesh_begin="BEGIN IMMEDIATE")


def _configure(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    assert isinstance(connection, sqlite3.Connection)
    connection.isolation_level = None  # the driver starts no transactions of its own: `_begin` does
    for pragma in PRAGMAS:
        _execute_patiently(connection, pragma)


def _execute_patiently(connection: sqlite3.Connection, statement: str) -> None:
    """SQLite does not wait for who else changes the journal of a new file, as it waits for whoever writes."""
    give_up_at = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= give_up_at:
                raise
            time.sleep(BUSY_LOOK)  # of a thread of its own
        else:
            return


def _begin(connection: Connection) -> None:
    # Without SQLAlchemy's making of statements, which takes longer than this one.
    connection.exec_driver_sql(connection.get_execution_options().get("mesh_begin", "BEGIN"))


def postgres_engine(database: PostgresDatabase) -> Engine:
    """Raises MissingExtraError when the driver is not installed. Nothing is connected yet."""
    try:
        engine = create_engine(
            database.url,
            connect_args={
                "application_name": "agentmesh",
                "connect_timeout": round(ANSWER_TIMEOUT),
                "tcp_user_timeout": round(ANSWER_TIMEOUT * 1000),  # a server that vanished is noticed, too
            },
            pool_size=POSTGRES_CONNECTIONS,
            max_overflow=0,
            pool_pre_ping=True,  # a server that was restarted is not an error of the first requests after
            isolation_level="READ COMMITTED",  # changes are conditional statements: they see what was committed last
            hide_parameters=True,
        )
    except ModuleNotFoundError as exc:
        raise MissingExtraError("a PostgreSQL database needs its driver: pip install 'agentmesh[postgres]'") from exc
    event.listen(engine, "connect", _limit)
    return engine


def on_snapshot(engine: Engine) -> Engine:
    """PostgreSQL: transactions that read, and see the database as of one moment."""
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def _limit(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute(f"SET statement_timeout = {round(ANSWER_TIMEOUT * 1000)}")
    cursor.close()
    connection.commit()
