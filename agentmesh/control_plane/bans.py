"""Who is out, as it is stored. Functions of a connection, each called inside one transaction.

What is banned is an identity: a peer ID, or "<issuer>|<subject>" of somebody, and then all that is theirs is out.
"""

from sqlalchemy import Connection, delete, insert, select

from agentmesh.control_plane import rows
from agentmesh.control_plane.generations import Topic, changed
from agentmesh.control_plane.schema import banned_identities, node_owners


def banned_peers(connection: Connection) -> frozenset[str]:
    """Those that are banned themselves, or whose owner is. A person's identity holds a bar, and no peer ID does."""
    identities = select(banned_identities.c.identity)
    themselves = identities.where(banned_identities.c.identity.not_like("%|%"))
    owned = select(node_owners.c.peer_id).where(node_owners.c.owner_id.in_(identities))
    return frozenset((*connection.execute(themselves).scalars(), *connection.execute(owned).scalars()))


def is_banned(connection: Connection, *identities: str | None) -> bool:
    """Whether one of these is banned. None is nobody."""
    asked = [identity for identity in identities if identity is not None]
    found = select(banned_identities.c.identity).where(banned_identities.c.identity.in_(asked)).limit(1)
    return connection.execute(found).one_or_none() is not None


def ban(connection: Connection, identity: str, now: float) -> None:
    """Ban; of one that is banned the first instant stays."""
    if not is_banned(connection, identity):
        connection.execute(insert(banned_identities).values(identity=identity, banned_at=rows.to_ms(now)))
        changed(connection, Topic.BANS)


def unban(connection: Connection, *identities: str | None) -> None:
    """Lift the bans of these, if they are banned. None is nobody."""
    asked = [identity for identity in identities if identity is not None]
    if connection.execute(delete(banned_identities).where(banned_identities.c.identity.in_(asked))).rowcount:
        changed(connection, Topic.BANS)
