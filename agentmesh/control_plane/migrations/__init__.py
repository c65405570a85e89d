"""The way from every released schema to that of today, as Alembic revisions. What they make and what `schema` says is
the same: a test compares them.
"""

from agentmesh.control_plane.migrations.upgrade import MigrationError, migrate

__all__ = ["MigrationError", "migrate"]
