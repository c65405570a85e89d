"""How often each of a few things has changed. Whoever keeps a copy of one in memory compares a number, and not rows.

A change and its number are in one transaction, so no replica sees the one without the other.
"""

import enum
from collections.abc import Mapping

from sqlalchemy import Connection, insert, select, update

from agentmesh.control_plane.schema import generations


class Topic(enum.Enum):
    KEYS = "keys"
    LEASES = "leases"
    BANS = "bans"


def changed(connection: Connection, topic: Topic) -> None:
    """Note that it changes with this transaction. Late in it is best: on PostgreSQL others that note it wait."""
    grown = update(generations).where(generations.c.topic == topic.value).values(number=generations.c.number + 1)
    if connection.execute(grown).rowcount == 0:
        connection.execute(insert(generations).values(topic=topic.value, number=1))


def numbers(connection: Connection) -> Mapping[str, int]:
    """Of each topic that ever changed."""
    return {row.topic: row.number for row in connection.execute(select(generations))}
