"""Which peers are out, as it is stored."""

from sqlalchemy import Connection, select

from agentmesh.control_plane.schema import banned_identities, node_owners


def banned_peers(connection: Connection) -> frozenset[str]:
    """Those that are banned themselves, or whose owner is. A person's identity holds a bar, and no peer ID does."""
    identities = select(banned_identities.c.identity)
    themselves = identities.where(banned_identities.c.identity.not_like("%|%"))
    owned = select(node_owners.c.peer_id).where(node_owners.c.owner_id.in_(identities))
    return frozenset((*connection.execute(themselves).scalars(), *connection.execute(owned).scalars()))
