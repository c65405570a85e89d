"""When a retired key stops being honoured, and how often keys, leases and bans have changed."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("keyring", sa.Column("expires_at", sa.BigInteger))
    generations = op.create_table(
        "generations",
        sa.Column("topic", sa.String(32), primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(generations, [{"topic": topic, "number": 1} for topic in ("keys", "leases", "bans")])
