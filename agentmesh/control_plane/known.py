"""All that there is of a peer and the bootstrap token that it shows, in as few statements as possible.

Each request that leads into the mesh begins with it, and what a statement costs is mostly its making.
"""

from typing import Any

import attrs
from sqlalchemy import Connection, Row, Select, String, Table, bindparam, cast, select

from agentmesh.control_plane import rows
from agentmesh.control_plane.access_queries import Found, found_of, owner_of, token_owner_of
from agentmesh.control_plane.records import BootstrapToken, Enrollment, Node, TokenOwner
from agentmesh.control_plane.schema import bootstrap_tokens, enrollment_requests, node_owners, nodes, token_owners
from agentmesh.types import PeerId


@attrs.frozen
class Part:
    """The columns of one table in a row of several."""

    row: Row[Any]
    prefix: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.row, self.prefix + name)


def _labelled(*tables: Table) -> Select[Any]:
    return select(*(column.label(f"{table.name}_{column.name}") for table in tables for column in table.columns))


def _part(row: Row[Any], table: Table, key: str) -> Any:
    """The columns of a table, or None when it has no such row. `key`: a column that is never NULL in one."""
    part = Part(row, f"{table.name}_")
    return None if getattr(part, key) is None else part


_asked = select(cast(bindparam("peer"), String).label("peer_id")).subquery("asked")
PEER = _labelled(enrollment_requests, nodes, node_owners).select_from(
    _asked.outerjoin(enrollment_requests, enrollment_requests.c.peer_id == _asked.c.peer_id)
    .outerjoin(nodes, nodes.c.peer_id == _asked.c.peer_id)
    .outerjoin(node_owners, node_owners.c.peer_id == _asked.c.peer_id)
)
TOKEN = (
    _labelled(bootstrap_tokens, token_owners)
    .select_from(bootstrap_tokens.outerjoin(token_owners, token_owners.c.token_id == bootstrap_tokens.c.id))
    .where(bootstrap_tokens.c.id == bindparam("token_id"))
)


@attrs.frozen
class Everything:
    """Of a peer and a token, as of one moment."""

    token: BootstrapToken | None
    enrollment: Enrollment | None
    node: Node | None
    found: Found


def everything(connection: Connection, peer: PeerId, token_id: str, revision: int) -> Everything:
    """What there is.

    Args:
        token_id: "" when the peer shows no token.
        revision: of the policy that is known: another is read.
    """
    of_peer = connection.execute(PEER, {"peer": str(peer)}).one()
    of_token = connection.execute(TOKEN, {"token_id": token_id}).one_or_none() if token_id else None
    enrollment, node, owner = (
        _part(of_peer, enrollment_requests, "id"),
        _part(of_peer, nodes, "peer_id"),
        _part(of_peer, node_owners, "peer_id"),
    )
    token = None if of_token is None else Part(of_token, f"{bootstrap_tokens.name}_")
    token_owner = None if of_token is None else _part(of_token, token_owners, "token_id")
    return Everything(
        token=None if token is None else rows.token_of(token),
        enrollment=None if enrollment is None else rows.enrollment_of(enrollment),
        node=None if node is None else rows.node_of(node),
        found=found_of(
            connection,
            peer,
            None if owner is None else owner_of(owner),
            TokenOwner() if token_owner is None else token_owner_of(token_owner),
            revision,
        ),
    )
