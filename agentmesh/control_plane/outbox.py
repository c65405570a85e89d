"""Events that the mesh is to be told of, kept from the change that they tell of until somebody publishes them.

An event is written in the transaction of its change, so that there is neither without the other. Of many replicas one
publishes it.
"""

from collections.abc import Sequence

import attrs
from sqlalchemy import Connection, delete, insert, select, update

from agentmesh.control_plane import rows
from agentmesh.control_plane.database import Database
from agentmesh.control_plane.schema import events

MAX_WAITING = 1000  # events that are looked at, at once


@attrs.frozen
class Waiting:
    """An event that nobody has published yet."""

    id: int
    data: bytes  # signed
    created_at: float


def put_events(connection: Connection, found: Sequence[bytes], now: float) -> None:
    """Keep signed events, in their order."""
    for data in found:
        connection.execute(insert(events).values(data=data, created_at=rows.to_ms(now)))


class Outbox:
    """Any call raises StoreError when the database does not answer. Instants are wall-clock seconds."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, data: bytes, now: float) -> None:
        """Keep a signed event that tells of no change in the database."""
        await self._database.write(lambda connection: put_events(connection, [data], now))

    async def waiting(self) -> list[Waiting]:
        """The first that nobody has published, oldest first."""

        def job(connection: Connection) -> list[Waiting]:
            oldest = select(events).where(events.c.published_at.is_(None)).order_by(events.c.id).limit(MAX_WAITING)
            return [Waiting(row.id, row.data, rows.to_seconds(row.created_at)) for row in connection.execute(oldest)]

        return await self._database.read(job)

    async def claim(self, event: Waiting, now: float) -> bool:
        """Take it on oneself to publish an event. False: another replica has."""

        def job(connection: Connection) -> bool:
            still = update(events).where(events.c.id == event.id, events.c.published_at.is_(None))
            return connection.execute(still.values(published_at=rows.to_ms(now))).rowcount == 1

        return await self._database.write(job)

    async def forget(self, before: float) -> int:
        """Delete those that are older; how many there were."""

        def job(connection: Connection) -> int:
            return connection.execute(delete(events).where(events.c.created_at < rows.to_ms(before))).rowcount

        return await self._database.write(job)
