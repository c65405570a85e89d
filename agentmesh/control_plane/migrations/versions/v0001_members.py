"""Members, bootstrap tokens, leases and a signing key: the tables of 0.1.0, which made them and noted no revision."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "keyring",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("private_key", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "nodes",
        sa.Column("peer_id", sa.String(128), primary_key=True),
        sa.Column("role", sa.String(128), nullable=False),
        sa.Column("labels_json", sa.Text, nullable=False),
        sa.Column("enrolled_at", sa.BigInteger, nullable=False),
        sa.Column("biscuit_token", sa.LargeBinary, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("issued_for", sa.String(128), nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "routers",
        sa.Column("peer_id", sa.String(128), primary_key=True),
        sa.Column("multiaddresses", sa.Text, nullable=False),
        sa.Column("last_lease_renewal", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("connected_peers", sa.BigInteger, nullable=False),
        sa.Column("dht_size", sa.BigInteger, nullable=False),
        sa.Column("connections", sa.BigInteger, nullable=False),
        sa.Column("connection_limit", sa.BigInteger, nullable=False),
        if_not_exists=True,
    )
    op.create_index("ix_routers_expires_at", "routers", ["expires_at"], if_not_exists=True)
    op.create_table(
        "bootstrap_tokens",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("role", sa.String(128), nullable=False),
        sa.Column("max_usages", sa.BigInteger, nullable=False),
        sa.Column("usages_count", sa.BigInteger, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("revoked_at", sa.BigInteger),
        if_not_exists=True,
    )
    op.create_table(
        "enrollment_requests",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("peer_id", sa.String(128), nullable=False, unique=True),
        sa.Column("token_id", sa.String(64), nullable=False),
        sa.Column("role", sa.String(128), nullable=False),
        sa.Column("labels_json", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("resolved_at", sa.BigInteger),
        if_not_exists=True,
    )
    op.create_index("enrollment_requests_by_token", "enrollment_requests", ["token_id", "status"], if_not_exists=True)
