"""The tables. Instants are integer milliseconds since 1970, maps and lists are JSON text."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, MetaData, String, Table, Text

metadata = MetaData()

keyring = Table(
    "keyring",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("private_key", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),  # NULL: it signs
)

# How often each of a few things has changed: who has read them once reads only this.
generations = Table(
    "generations",
    metadata,
    Column("topic", String(32), primary_key=True),
    Column("number", BigInteger, nullable=False),
)

nodes = Table(
    "nodes",
    metadata,
    Column("peer_id", String(128), primary_key=True),
    Column("role", String(128), nullable=False),
    Column("labels_json", Text, nullable=False),
    Column("enrolled_at", BigInteger, nullable=False),
    Column("biscuit_token", LargeBinary, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("issued_for", String(128), nullable=False),
)

routers = Table(
    "routers",
    metadata,
    Column("peer_id", String(128), primary_key=True),
    Column("multiaddresses", Text, nullable=False),
    Column("last_lease_renewal", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False, index=True),
    Column("connected_peers", BigInteger, nullable=False),
    Column("dht_size", BigInteger, nullable=False),
    Column("connections", BigInteger, nullable=False),
    Column("connection_limit", BigInteger, nullable=False),
)

bootstrap_tokens = Table(
    "bootstrap_tokens",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("role", String(128), nullable=False),
    Column("max_usages", BigInteger, nullable=False),
    Column("usages_count", BigInteger, nullable=False),
    Column("description", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
)

enrollment_requests = Table(
    "enrollment_requests",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("peer_id", String(128), nullable=False, unique=True),
    Column("token_id", String(64), nullable=False),
    Column("role", String(128), nullable=False),
    Column("labels_json", Text, nullable=False),
    Column("status", String(16), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("resolved_at", BigInteger),
    Index("enrollment_requests_by_token", "token_id", "status"),
)

# An identity is "<issuer>|<subject>" of somebody, or a peer ID.

policies = Table(
    "policies",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # 1: there is one
    Column("revision", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

users = Table(
    "users",
    metadata,
    Column("id", String(600), primary_key=True),
    Column("issuer", String(300), nullable=False),
    Column("email", String(300), nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

node_owners = Table(
    "node_owners",
    metadata,
    Column("peer_id", String(128), primary_key=True),
    Column("enrolled_by", String(16), nullable=False),
    Column("owner_id", String(600), index=True),
    Column("claims_json", Text, nullable=False),
    Column("session_ends_at", BigInteger),
    Column("autonomous_recovery", Boolean, nullable=False),
)

token_owners = Table(
    "token_owners",
    metadata,
    Column("token_id", String(64), primary_key=True),
    Column("owner_id", String(600), index=True),
    Column("autonomous_recovery", Boolean, nullable=False),
)

banned_identities = Table(
    "banned_identities",
    metadata,
    Column("identity", String(600), primary_key=True),
    Column("banned_at", BigInteger, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("data", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("published_at", BigInteger),  # NULL: not yet
)
