"""Who may do what: the policy, users, whose each node and token is, bans; and the events that members are told of."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "policies",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.String(600), primary_key=True),
        sa.Column("issuer", sa.String(300), nullable=False),
        sa.Column("email", sa.String(300), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "node_owners",
        sa.Column("peer_id", sa.String(128), primary_key=True),
        sa.Column("enrolled_by", sa.String(16), nullable=False),
        sa.Column("owner_id", sa.String(600)),
        sa.Column("claims_json", sa.Text, nullable=False),
        sa.Column("session_ends_at", sa.BigInteger),
        sa.Column("autonomous_recovery", sa.Boolean, nullable=False),
    )
    op.create_index("ix_node_owners_owner_id", "node_owners", ["owner_id"])
    op.create_table(
        "token_owners",
        sa.Column("token_id", sa.String(64), primary_key=True),
        sa.Column("owner_id", sa.String(600)),
        sa.Column("autonomous_recovery", sa.Boolean, nullable=False),
    )
    op.create_index("ix_token_owners_owner_id", "token_owners", ["owner_id"])
    op.create_table(
        "banned_identities",
        sa.Column("identity", sa.String(600), primary_key=True),
        sa.Column("banned_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
