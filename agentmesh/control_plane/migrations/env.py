"""What Alembic runs for every command: the revisions, on the connection that it is given and within its transaction."""

from alembic import context

from agentmesh.control_plane.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
