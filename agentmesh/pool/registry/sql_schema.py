"""The tables. Instants are integer milliseconds since 1970 by the database's clock, lists are JSON text.

A connection's row stays when its lease has run out or was released: it remembers the epoch. What is forgotten raises
the floor of its agent. Each registration of an agent's connection locks the agent's floor first, so they come one by
one, and those of other agents beside them.
"""

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

from agentmesh.pool.registry.values import MAX_ID_CHARS

# IDs are ASCII and differ in case, whatever a MySQL server takes for equal otherwise.
IDENTIFIER: TypeEngine[str] = String(MAX_ID_CHARS).with_variant(
    mysql.VARCHAR(MAX_ID_CHARS, charset="ascii", collation="ascii_bin"), "mysql", "mariadb"
)

metadata = MetaData()

connections = Table(
    "agent_connections",
    metadata,
    Column("agent_id", IDENTIFIER, primary_key=True),
    Column("connection_id", IDENTIFIER, primary_key=True),
    Column("instance_id", IDENTIFIER, nullable=False),
    Column("server_node_id", IDENTIFIER, nullable=False),
    Column("connection_epoch", BigInteger, nullable=False),
    Column("capabilities", Text, nullable=False),
    Column("active_streams", BigInteger, nullable=False),
    Column("health_score", Integer, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("agent_key", IDENTIFIER, nullable=False),  # what all spellings of the agent's ID have in common
    Column("stats_at", BigInteger, nullable=False),
    Index("agent_connections_by_agent", "agent_id", "expires_at"),
    Index("agent_connections_by_node", "server_node_id", "expires_at"),
    Index("agent_connections_by_key", "agent_key", "expires_at"),
    Index("agent_connections_by_end", "expires_at"),
)

floors = Table(
    "agent_connection_floors",
    metadata,
    Column("agent_id", IDENTIFIER, primary_key=True),
    Column("floor", BigInteger, nullable=False),  # the highest epoch of connections that were forgotten
)
