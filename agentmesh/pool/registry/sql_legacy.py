"""Copying the leases of `agent_runtime_leases`, which is only read."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from sqlalchemy import Column, Connection, MetaData, RowMapping, String, Table, bindparam, inspect, select
from sqlalchemy.types import NullType

from agentmesh.pool.registry.errors import IdentifierError
from agentmesh.pool.registry.legacy import Migration, connection_of, seconds_of
from agentmesh.pool.registry.sql_database import SqlDatabase
from agentmesh.pool.registry.sql_statements import Statements
from agentmesh.pool.registry.sql_values import key_of, values_of

logger = logging.getLogger(__name__)

PAGE = 500  # leases of one transaction

_legacy = Table(
    "agent_runtime_leases",
    MetaData(),
    Column("agent_id", String, primary_key=True),
    Column("node_id", String),
    Column("epoch", NullType),
    Column("expires_at", NullType),
)
_page = select(_legacy).where(_legacy.c.agent_id > bindparam("after")).order_by(_legacy.c.agent_id).limit(PAGE)


async def migrate(database: SqlDatabase) -> Migration:
    """Copy what has not been copied yet. Nothing is done where there is no such table.

    Raises:
        RegistryUnavailableError: the database does not answer. What was copied stays; do it again.
    """
    if not await database.read(lambda connection: inspect(connection).has_table(_legacy.name)):
        return Migration()
    total, after = Migration(), ""
    while rows := await database.read(partial(_read, after=after)):
        total += await database.write(partial(_copy, rows=rows))
        after = rows[-1]["agent_id"]
    logger.info("legacy leases migrated", extra={"copied": total.copied, "known": total.known})
    if total.refused:
        logger.warning("legacy leases that no registry can keep", extra={"agents": total.refused[:100]})
    return total


def _read(connection: Connection, after: str) -> Sequence[RowMapping]:
    return connection.execute(_page, {"after": after}).mappings().all()


def _copy(connection: Connection, rows: Sequence[RowMapping]) -> Migration:
    statements = Statements(connection.dialect.name)
    done = Migration()
    for row in rows:
        try:
            done += _copy_one(connection, statements, row)
        except IdentifierError:
            done += Migration(refused=(str(row["agent_id"]),))
    return done


def _copy_one(connection: Connection, statements: Statements, row: RowMapping) -> Migration:
    new, fence = connection_of(str(row["agent_id"]), str(row["node_id"]), row["epoch"])
    expires_at = round(seconds_of(row["expires_at"]) * 1000)
    floor = statements.lock_agent(connection, new.agent_id)
    now: int = connection.execute(statements.now).scalar_one()
    is_there = connection.execute(statements.find, key_of(new)).one_or_none() is not None
    if is_there or (expires_at <= now and fence.epoch <= floor):  # or it was, and has been forgotten
        return Migration(known=1)
    values: dict[str, Any] = values_of(new, fence.epoch, expires_at, now)
    connection.execute(statements.insert, values)
    return Migration(copied=1)
