"""Who is out, as it is stored. Functions of a connection, each called inside one transaction.

What is banned is an identity: a peer ID, or "<issuer>|<subject>" of somebody, and then all that is theirs is out.
"""

from itertools import zip_longest
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, bindparam, delete, insert, or_, select

from agentmesh.control_plane import rows
from agentmesh.control_plane.generations import Topic, changed
from agentmesh.control_plane.schema import banned_identities, node_owners, nodes

# Of three at most, and made once: a statement with as many places as there are identities is made for each call.
ASKED = ("first", "second", "third")
AMONG = select(banned_identities.c.identity).where(
    banned_identities.c.identity.in_([bindparam(name) for name in ASKED])
)


def banned_peers(connection: Connection) -> frozenset[str]:
    """Those that are banned themselves, or whose owner is. A person's identity holds a bar, and no peer ID does."""
    themselves = _identities().where(banned_identities.c.identity.not_like("%|%"))
    return frozenset((*connection.execute(themselves).scalars(), *connection.execute(_owned()).scalars()))


def node_is_banned() -> ColumnElement[bool]:
    """Of a row of `nodes`: whether it is out."""
    return or_(nodes.c.peer_id.in_(_identities()), nodes.c.peer_id.in_(_owned()))


def banned_among(connection: Connection, *identities: str | None) -> frozenset[str]:
    """Which of these, three at most, are banned. None is nobody."""
    assert len(identities) <= len(ASKED)
    asked = {name: identity or "" for name, identity in zip_longest(ASKED, identities)}
    return frozenset(connection.execute(AMONG, asked).scalars())


def is_banned(connection: Connection, *identities: str | None) -> bool:
    """Whether one of these is banned. None is nobody."""
    return bool(banned_among(connection, *identities))


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


def _identities() -> Select[Any]:
    return select(banned_identities.c.identity)


def _owned() -> Select[Any]:
    return select(node_owners.c.peer_id).where(node_owners.c.owner_id.in_(_identities()))
