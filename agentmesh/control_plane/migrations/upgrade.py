"""Bringing a database's tables up to date."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, text

from agentmesh.errors import MeshError

LOCK = 7345892  # of PostgreSQL's advisory locks, held while the tables change


class MigrationError(MeshError):
    """The tables cannot be brought up to date: they were made by a newer version."""


def migrate(connection: Connection, revision: str = "head") -> None:
    """Bring the tables up to date, or to a revision, within the transaction of `connection`.

    Replicas that start at once wait for one another: on SQLite for the write lock, which the transaction has to hold,
    on PostgreSQL for a lock of our own.

    Raises:
        MigrationError: they are at a revision that is not one of ours.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL statement_timeout = 0"))  # another replica may have much to do
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, revision)
    except CommandError as exc:
        raise MigrationError("the database was made by a newer version of agentmesh") from exc
