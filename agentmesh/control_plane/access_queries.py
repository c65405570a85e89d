"""The SQL of who may do what: the policy, and whose what is. Functions of a connection, each called inside one
transaction.
"""

import json
from collections.abc import Mapping, Sequence

import attrs
from sqlalchemy import Connection, bindparam, insert, select, update

from agentmesh.control_plane import rows
from agentmesh.control_plane.bans import banned_among, is_banned
from agentmesh.control_plane.database import RacedError
from agentmesh.control_plane.records import BootstrapToken, EnrolledBy, Node, Owner, TokenOwner, User
from agentmesh.control_plane.schema import bootstrap_tokens, node_owners, nodes, policies, token_owners, users
from agentmesh.control_plane.upserts import Upsert
from agentmesh.types import PeerId

POLICY_ID = 1

# Statements of every enrollment are made once: making one costs more than running it.
POLICY = select(policies.c.revision, policies.c.document).where(policies.c.revision != bindparam("known"))
OWNER = select(node_owners).where(node_owners.c.peer_id == bindparam("peer"))
TOKEN_OWNER = select(token_owners).where(token_owners.c.token_id == bindparam("token"))
upsert_owner = Upsert(node_owners)
upsert_user = Upsert(users, kept=("created_at",))


# ── policy ──


def policy_since(connection: Connection, revision: int) -> tuple[int, str] | None:
    """The revision and the document, if it is another than `revision`; None when there is none newer."""
    row = connection.execute(POLICY, {"known": revision}).one_or_none()
    return None if row is None else (row.revision, row.document)


def put_policy(connection: Connection, document: str, now: float) -> None:
    values = {"document": document, "updated_at": rows.to_ms(now)}
    replaced = update(policies).values(revision=policies.c.revision + 1, **values)
    if connection.execute(replaced).rowcount == 0:
        connection.execute(insert(policies).values(id=POLICY_ID, revision=1, **values))


def first_policy(connection: Connection, document: str, now: float) -> bool:
    """Make this the policy if there is none. Whether it is now."""
    if policy_since(connection, 0) is not None:
        return False
    values = {"id": POLICY_ID, "revision": 1, "document": document, "updated_at": rows.to_ms(now)}
    connection.execute(insert(policies).values(values))  # and no update: another replica's may be there by now
    return True


# ── how a peer stands ──


@attrs.frozen
class Found:
    """Of a peer, as of one moment."""

    peer: PeerId
    policy: tuple[int, str] | None  # its revision and document, if it is another than the one that is known
    owner: Owner | None
    token_owner: TokenOwner
    banned: frozenset[str]  # of these three


def standing(connection: Connection, peer: PeerId, token_id: str, revision: int) -> Found:
    """How a peer stands that shows a bootstrap token, and the policy if it is another than that of `revision`."""
    return found_of(connection, peer, owner(connection, peer), token_owner(connection, token_id), revision)


def found_of(connection: Connection, peer: PeerId, known: Owner | None, of_token: TokenOwner, revision: int) -> Found:
    """The same, of owners that are read already."""
    banned = banned_among(connection, str(peer), known.identity if known else None, of_token.identity)
    return Found(peer, policy_since(connection, revision), known, of_token, banned)


# ── owners ──


def owner(connection: Connection, peer: PeerId) -> Owner | None:
    row = connection.execute(OWNER, {"peer": str(peer)}).one_or_none()
    return None if row is None else owner_of(row)


def nodes_listed(connection: Connection, after: str, limit: int) -> list[tuple[Node, Owner | None]]:
    """The first `limit` nodes behind `after`, by peer ID, with whose they are."""
    found = connection.execute(
        select(nodes).where(nodes.c.peer_id > after).order_by(nodes.c.peer_id).limit(limit)
    ).all()
    owned = select(node_owners).where(node_owners.c.peer_id.in_([row.peer_id for row in found]))
    owners = {row.peer_id: owner_of(row) for row in connection.execute(owned)}
    return [(rows.node_of(row), owners.get(row.peer_id)) for row in found]


def nodes_of(connection: Connection, identity: str) -> list[tuple[Node, Owner]]:
    owned = select(nodes, node_owners).join(node_owners, node_owners.c.peer_id == nodes.c.peer_id)
    found = connection.execute(owned.where(node_owners.c.owner_id == identity).order_by(nodes.c.enrolled_at))
    return [(rows.node_of(row), owner_of(row)) for row in found]


def tokens_of(connection: Connection, identity: str) -> list[tuple[BootstrapToken, TokenOwner]]:
    owned = select(bootstrap_tokens, token_owners).join(token_owners, token_owners.c.token_id == bootstrap_tokens.c.id)
    found = connection.execute(
        owned.where(token_owners.c.owner_id == identity).order_by(bootstrap_tokens.c.created_at.desc())
    )
    return [(rows.token_of(row), TokenOwner(row.owner_id, row.autonomous_recovery)) for row in found]


def owner_of(row: rows.AnyRow) -> Owner:
    return Owner(
        peer=PeerId.parse(row.peer_id),
        enrolled_by=EnrolledBy(row.enrolled_by),
        identity=row.owner_id,
        claims={kind: frozenset(values) for kind, values in json.loads(row.claims_json).items()},
        session_ends_at=rows.optional_seconds(row.session_ends_at),
        autonomous_recovery=row.autonomous_recovery,
    )


def put_owner(connection: Connection, owner: Owner) -> None:
    values = {
        "peer_id": str(owner.peer),
        "enrolled_by": owner.enrolled_by.value,
        "owner_id": owner.identity,
        "claims_json": _claims_json(owner.claims),
        "session_ends_at": None if owner.session_ends_at is None else rows.to_ms(owner.session_ends_at),
        "autonomous_recovery": owner.autonomous_recovery,
    }
    upsert_owner(connection, values)


def note_owner(connection: Connection, owner: Owner) -> None:
    """Note whose a node is. Raises RacedError: it or its owner is banned by now; whoever decides again sees it."""
    if is_banned(connection, str(owner.peer), owner.identity):
        raise RacedError("banned meanwhile")
    put_owner(connection, owner)


def set_autonomous_recovery(connection: Connection, peer: PeerId, enabled: bool) -> bool:
    """False: there is no such node."""
    if connection.execute(select(nodes.c.peer_id).where(nodes.c.peer_id == str(peer))).one_or_none() is None:
        return False
    known = owner(connection, peer) or Owner(peer, EnrolledBy.TOKEN)
    put_owner(connection, attrs.evolve(known, autonomous_recovery=enabled))
    return True


def token_owner(connection: Connection, token_id: str) -> TokenOwner:
    row = connection.execute(TOKEN_OWNER, {"token": token_id}).one_or_none()
    return TokenOwner() if row is None else token_owner_of(row)


def token_owner_of(row: rows.AnyRow) -> TokenOwner:
    return TokenOwner(row.owner_id, row.autonomous_recovery)


def owners_of_tokens(connection: Connection, token_ids: Sequence[str]) -> Mapping[str, TokenOwner]:
    found = connection.execute(select(token_owners).where(token_owners.c.token_id.in_(token_ids)))
    return {row.token_id: TokenOwner(row.owner_id, row.autonomous_recovery) for row in found}


def put_token_owner(connection: Connection, token_id: str, owner: TokenOwner) -> None:
    values = {"owner_id": owner.identity, "autonomous_recovery": owner.autonomous_recovery}
    connection.execute(insert(token_owners).values(token_id=token_id, **values))


def peers_of(connection: Connection, identity: str) -> list[PeerId]:
    """The nodes of an identity."""
    owned = select(node_owners.c.peer_id).where(node_owners.c.owner_id == identity).order_by(node_owners.c.peer_id)
    return [PeerId.parse(peer_id) for peer_id in connection.execute(owned).scalars()]


def user(connection: Connection, user_id: str) -> User | None:
    row = connection.execute(select(users).where(users.c.id == user_id)).one_or_none()
    return None if row is None else User(row.id, row.issuer, row.email, rows.to_seconds(row.created_at))


def put_user(connection: Connection, user: User) -> None:
    values = {"id": user.id, "issuer": user.issuer, "email": user.email, "created_at": rows.to_ms(user.created_at)}
    upsert_user(connection, values)


def _claims_json(claims: Mapping[str, frozenset[str]]) -> str:
    return json.dumps({kind: sorted(values) for kind, values in claims.items()}, sort_keys=True)
