"""When an event was told to the mesh."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("events", sa.Column("published_at", sa.BigInteger))
