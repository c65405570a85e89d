"""The statements, each made once for the kind of database. Each says what it may touch: the fence is in its WHERE."""

from collections.abc import Callable

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Insert,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite

from agentmesh.pool.registry.rules import NO_EPOCH
from agentmesh.pool.registry.sql_schema import connections, floors

MAX_SPELLINGS = 16  # of one agent's ID, in the text of an error

# Milliseconds since 1970 when the statement began, by the database's clock.
CLOCKS = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
    "mysql": "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000 AS SIGNED)",
}

_rows = connections.c
_is_of_agent = _rows.agent_id == bindparam("of_agent")
_is_it = and_(_is_of_agent, _rows.connection_id == bindparam("of_connection"))
_is_fenced = and_(_is_it, _rows.connection_epoch == bindparam("of_epoch"))


class Statements:
    """Args:
    dialect: as SQLAlchemy names it.
    """

    def __init__(self, dialect: str) -> None:
        now: ColumnElement[int] = literal_column(CLOCKS[dialect], BigInteger)
        is_listed = _rows.expires_at > now
        self.now = select(now)
        self.lock_agent: Callable[[Connection, str], int] = LOCKS[dialect]
        self.find = select(_rows.connection_epoch, _rows.server_node_id, _rows.expires_at).where(_is_it)
        self.count = select(
            now.label("now"),
            func.coalesce(func.sum(case((is_listed, 1), else_=0)), 0).label("listed"),
            func.coalesce(func.sum(case((is_listed, 0), else_=1)), 0).label("ended"),
        ).where(_is_of_agent)
        self.insert = connections.insert()
        self.replace = update(connections).where(_is_it)  # sets the columns that it is given
        owned = update(connections).where(_is_fenced, is_listed)
        self.renew = owned.values(expires_at=now + bindparam("ttl", type_=BigInteger))
        self.release = owned.values(expires_at=now)
        self.report = owned.values(active_streams=bindparam("streams"), health_score=bindparam("health"), stats_at=now)
        self.spellings = (
            select(_rows.agent_id)
            .where(_rows.agent_key == bindparam("agent_key"), is_listed)
            .distinct()
            .limit(MAX_SPELLINGS)
        )
        self.listed = (
            select(connections, now.label("now"))
            .where(_is_of_agent, is_listed)
            .order_by(_rows.connection_id)
            .limit(bindparam("at_most"))
        )
        self.oldest = (
            select(_rows.connection_id, _rows.connection_epoch)
            .where(_is_of_agent, _rows.expires_at <= now)
            .order_by(_rows.expires_at)
            .limit(bindparam("at_most"))
        )
        self.ended = (
            select(_rows.agent_id, _rows.connection_id, _rows.connection_epoch)
            .where(_rows.expires_at <= now - bindparam("retention", type_=BigInteger))
            .limit(bindparam("at_most"))
        )
        self.forget = delete(connections).where(_is_fenced, _rows.expires_at <= now)
        self.raise_floor = (
            update(floors)
            .where(floors.c.agent_id == bindparam("of_agent"), floors.c.floor < bindparam("epoch"))
            .values(floor=bindparam("epoch", type_=BigInteger))
        )


def _returning(statement: Insert) -> Callable[[Connection, str], int]:
    def lock(connection: Connection, agent_id: str) -> int:
        floor: int = connection.execute(statement, {"agent_id": agent_id, "floor": NO_EPOCH}).scalar_one()
        return floor

    return lock


def _on_sqlite() -> Insert:
    insert = sqlite.insert(floors)
    return insert.on_conflict_do_update(index_elements=["agent_id"], set_={"floor": floors.c.floor}).returning(
        floors.c.floor
    )


def _on_postgresql() -> Insert:
    insert = postgresql.insert(floors)
    return insert.on_conflict_do_update(index_elements=["agent_id"], set_={"floor": floors.c.floor}).returning(
        floors.c.floor
    )


_on_mysql = mysql.insert(floors).on_duplicate_key_update(floor=floors.c.floor)
_floor = select(floors.c.floor).where(floors.c.agent_id == bindparam("agent_id"))


def _lock_on_mysql(connection: Connection, agent_id: str) -> int:
    connection.execute(_on_mysql, {"agent_id": agent_id, "floor": NO_EPOCH})
    floor: int = connection.execute(_floor, {"agent_id": agent_id}).scalar_one()
    return floor


# Makes the row of the agent's floor if there is none, and has it for this transaction alone. Gives the floor.
LOCKS: dict[str, Callable[[Connection, str], int]] = {
    "sqlite": _returning(_on_sqlite()),
    "postgresql": _returning(_on_postgresql()),
    "mysql": _lock_on_mysql,
}
