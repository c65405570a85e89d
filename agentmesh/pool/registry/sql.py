"""The registry in a database: SQLite for the routers of one machine, PostgreSQL, MySQL or MariaDB for any."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import groupby

from sqlalchemy import Connection, RowMapping, Update

from agentmesh.pool.registry import sql_legacy
from agentmesh.pool.registry.dsn import SqlDsn
from agentmesh.pool.registry.errors import AmbiguousAgentError, IdentifierError
from agentmesh.pool.registry.limits import RegistryLimits
from agentmesh.pool.registry.registry import ConnectionRegistry
from agentmesh.pool.registry.rules import Granted, decide
from agentmesh.pool.registry.sql_database import SqlDatabase, open_sql_database, while_tables_are_made
from agentmesh.pool.registry.sql_schema import metadata
from agentmesh.pool.registry.sql_statements import Statements
from agentmesh.pool.registry.sql_values import key_of, lease_of, milliseconds, remembered_of, values_of
from agentmesh.pool.registry.values import (
    ConnectionLease,
    Fence,
    Lapsed,
    NewConnection,
    Registered,
    RegisterOutcome,
    Released,
    ReleaseOutcome,
    Renewed,
    RenewOutcome,
    StatsOutcome,
    StatsReport,
    Superseded,
    Updated,
    check_retention,
    check_ttl,
    fold,
    is_identifier,
)
from agentmesh.protocols.pool import ConnEpoch

FORGET_BATCH = 500  # connections that are forgotten in one go


class SqlRegistry(ConnectionRegistry):
    """Made by `open_sql_registry`."""

    def __init__(self, database: SqlDatabase, limits: RegistryLimits) -> None:
        self._database, self._sql = database, Statements(database.dialect)
        self.limits, database.max_races = limits, limits.max_races

    async def register_connection(
        self, new: NewConnection, ttl: float, proposed: ConnEpoch | None = None
    ) -> RegisterOutcome:
        check_ttl(ttl, self.limits.max_ttl)
        return await self._database.write(partial(self._register, new=new, ttl=ttl, proposed=proposed))

    async def renew_connection(self, fence: Fence, ttl: float) -> RenewOutcome:
        check_ttl(ttl, self.limits.max_ttl)
        values = {"ttl": milliseconds(ttl)}
        found = await self._database.write(partial(self._change, statement=self._sql.renew, fence=fence, values=values))
        return Renewed(found / 1000) if isinstance(found, int) else found

    async def release_connection(self, fence: Fence) -> ReleaseOutcome:
        found = await self._database.write(partial(self._change, statement=self._sql.release, fence=fence, values={}))
        return Released() if isinstance(found, int) else found

    async def list_active_by_agent(self, agent_id: str, *, exact: bool = False) -> tuple[ConnectionLease, ...]:
        if not is_identifier(agent_id):
            return ()
        rows = await self._database.read(partial(self._listed, agent_id=agent_id, exact=exact))
        return tuple(sorted(map(lease_of, rows), key=lambda lease: lease.connection_id))

    async def update_connection_stats(self, reports: Sequence[StatsReport]) -> tuple[StatsOutcome, ...]:
        if len(reports) > self.limits.max_batch:
            raise IdentifierError(f"more than {self.limits.max_batch} reports")
        return await self._database.write(partial(self._report, reports=reports)) if reports else ()

    async def forget_fences(self, retention: float) -> int:
        check_retention(retention)
        forgotten = 0
        while True:
            ended = await self._database.read(partial(self._ended, retention=retention))
            for agent_id, rows in groupby(sorted(ended), key=lambda row: row[0]):
                job = partial(self._forget, agent_id=agent_id, rows=[row[1:] for row in rows])
                forgotten += await self._database.write(job)
            if len(ended) < FORGET_BATCH:
                return forgotten

    def _register(
        self, connection: Connection, new: NewConnection, ttl: float, proposed: ConnEpoch | None
    ) -> RegisterOutcome:
        floor = self._sql.lock_agent(connection, new.agent_id)
        key = key_of(new)
        row = connection.execute(self._sql.find, key).mappings().one_or_none()
        counted = connection.execute(self._sql.count, key).mappings().one()
        now = counted["now"]
        found = None if row is None else remembered_of(row, now)
        decision = decide(proposed, found, floor, counted["listed"], self.limits)
        if not isinstance(decision, Granted):
            return decision
        expires_at = now + milliseconds(ttl)
        values = values_of(new, decision.epoch, expires_at, now)
        if row is None:
            connection.execute(self._sql.insert, values)
        else:
            connection.execute(self._sql.replace, values | key)
        surplus = int(counted["ended"]) - self.limits.max_fences_per_agent
        if surplus > 0:
            self._forget(connection, new.agent_id, self._oldest(connection, new.agent_id, surplus))
        return Registered(new.fenced(decision.epoch), expires_at / 1000, decision.replaced)

    def _change(
        self, connection: Connection, statement: Update, fence: Fence, values: Mapping[str, int]
    ) -> int | Lapsed | Superseded:
        """Change what `fence` owns. Gives when the lease now expires, or why nothing changed."""
        key = key_of(fence)
        changed = connection.execute(statement, {**key, "of_epoch": fence.epoch, **values}).rowcount
        row = connection.execute(self._sql.find, key).mappings().one_or_none()
        if row is not None and row["connection_epoch"] > fence.epoch:
            return Superseded(ConnEpoch(row["connection_epoch"]))
        expires_at: int = row["expires_at"] if row is not None else 0
        return expires_at if changed else Lapsed()

    def _report(self, connection: Connection, reports: Sequence[StatsReport]) -> tuple[StatsOutcome, ...]:
        """In the order of their keys, so that two batches never wait for each other."""
        outcomes: dict[int, StatsOutcome] = {}
        for index, report in sorted(enumerate(reports), key=lambda pair: _order(pair[1].fence)):
            values = {"streams": report.stats.active_streams, "health": report.stats.health_score}
            found = self._change(connection, self._sql.report, report.fence, values)
            outcomes[index] = Updated() if isinstance(found, int) else found
        return tuple(outcomes[index] for index in range(len(reports)))

    def _listed(self, connection: Connection, agent_id: str, exact: bool) -> Sequence[RowMapping]:
        if not exact:
            spellings = connection.execute(self._sql.spellings, {"agent_key": fold(agent_id)}).scalars().all()
            if len(spellings) > 1:
                raise AmbiguousAgentError(tuple(sorted(spellings)))
            agent_id = spellings[0] if spellings else agent_id
        parameters = {"of_agent": agent_id, "at_most": self.limits.max_listed}
        return connection.execute(self._sql.listed, parameters).mappings().all()

    def _oldest(self, connection: Connection, agent_id: str, at_most: int) -> list[tuple[str, int]]:
        rows = connection.execute(self._sql.oldest, {"of_agent": agent_id, "at_most": at_most})
        return [(row.connection_id, row.connection_epoch) for row in rows]

    def _ended(self, connection: Connection, retention: float) -> list[tuple[str, str, int]]:
        parameters = {"retention": milliseconds(retention), "at_most": FORGET_BATCH}
        rows = connection.execute(self._sql.ended, parameters)
        return [(row.agent_id, row.connection_id, row.connection_epoch) for row in rows]

    def _forget(self, connection: Connection, agent_id: str, rows: Sequence[tuple[str, int]]) -> int:
        self._sql.lock_agent(connection, agent_id)
        gone = [
            epoch
            for connection_id, epoch in rows
            if connection.execute(
                self._sql.forget, {"of_agent": agent_id, "of_connection": connection_id, "of_epoch": epoch}
            ).rowcount
        ]
        if gone:
            connection.execute(self._sql.raise_floor, {"of_agent": agent_id, "epoch": max(gone)})
        return len(gone)


@asynccontextmanager
async def open_sql_registry(dsn: SqlDsn, limits: RegistryLimits | None = None) -> AsyncGenerator[SqlRegistry]:
    """Open the registry in a database. Tables that are missing are made, and leases of before copied into them.

    Raises:
        MissingExtraError: the driver is not installed.
        OSError: SQLite's file can be neither opened nor created.
        RegistryUnavailableError: the database does not answer.
    """
    async with open_sql_database(dsn) as database:
        await make_tables(database)
        await sql_legacy.migrate(database)
        yield SqlRegistry(database, limits or RegistryLimits())


async def make_tables(database: SqlDatabase) -> None:
    """Make those that are not there."""
    await database.write(partial(while_tables_are_made, make=metadata.create_all))


def _order(fence: Fence) -> tuple[str, str]:
    return fence.agent_id, fence.connection_id
