"""The store's SQL: functions of a connection, each called inside one transaction.

A change of state is a conditional statement: it happens if the row still is what the caller saw.
"""

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, Table, and_, bindparam, case, func, insert, select, text, update

from agentmesh.control_plane import access_queries, rows
from agentmesh.control_plane.bans import banned_peers, node_is_banned
from agentmesh.control_plane.database import RacedError
from agentmesh.control_plane.generations import Topic, changed
from agentmesh.control_plane.keyring import honoured, keys
from agentmesh.control_plane.records import (
    BootstrapToken,
    Census,
    Enrollment,
    EnrollmentRequest,
    Issue,
    Lease,
    Node,
    Owner,
    Status,
    TokenOwner,
)
from agentmesh.control_plane.schema import (
    banned_identities,
    bootstrap_tokens,
    enrollment_requests,
    nodes,
    routers,
    users,
)
from agentmesh.control_plane.upserts import Upsert
from agentmesh.credentials import ROLE_ROUTER
from agentmesh.errors import MeshError
from agentmesh.types import PeerId

# Statements of every enrollment are made once: making one costs more than running it.
TOKEN = select(bootstrap_tokens).where(bootstrap_tokens.c.id == bindparam("token_id"))
ENROLLMENT = select(enrollment_requests).where(enrollment_requests.c.peer_id == bindparam("peer"))
NODE = select(nodes).where(nodes.c.peer_id == bindparam("peer"))
SPEND = (
    update(bootstrap_tokens)
    .where(
        bootstrap_tokens.c.id == bindparam("token_id"),
        bootstrap_tokens.c.revoked_at.is_(None),
        bootstrap_tokens.c.expires_at > bindparam("now"),
        bootstrap_tokens.c.usages_count < bootstrap_tokens.c.max_usages,
    )
    .values(usages_count=bootstrap_tokens.c.usages_count + 1)
)
ADD_ENROLLMENT = insert(enrollment_requests)
put_node, put_lease = Upsert(nodes, kept=("enrolled_at",)), Upsert(routers)

MAX_PENDING_PER_TOKEN = 1000  # enrollments that wait for an admin; one token's holder could fill the table otherwise


class TooManyPendingError(MeshError):
    """MAX_PENDING_PER_TOKEN enrollments of this bootstrap token wait already."""


# ── bootstrap tokens ──


def add_token(connection: Connection, token: BootstrapToken, owner: TokenOwner | None = None) -> None:
    connection.execute(insert(bootstrap_tokens).values(rows.token_values(token)))
    if owner is not None:
        access_queries.put_token_owner(connection, token.id, owner)


def token(connection: Connection, token_id: str) -> BootstrapToken | None:
    row = connection.execute(TOKEN, {"token_id": token_id}).one_or_none()
    return None if row is None else rows.token_of(row)


def tokens(connection: Connection, limit: int) -> list[BootstrapToken]:
    """The newest `limit`, newest first."""
    newest = select(bootstrap_tokens).order_by(bootstrap_tokens.c.created_at.desc(), bootstrap_tokens.c.id).limit(limit)
    return [rows.token_of(row) for row in connection.execute(newest)]


def revoke_token(connection: Connection, token_id: str, now: float) -> bool:
    """Revoke; of one that is revoked the first instant stays. False: there is no such token."""
    revoked_at = func.coalesce(bootstrap_tokens.c.revoked_at, rows.to_ms(now))
    change = update(bootstrap_tokens).where(bootstrap_tokens.c.id == token_id).values(revoked_at=revoked_at)
    return connection.execute(change).rowcount == 1


def _spend(connection: Connection, token_id: str, now: float) -> None:
    if connection.execute(SPEND, {"token_id": token_id, "now": rows.to_ms(now)}).rowcount != 1:
        raise RacedError("the bootstrap token admits nobody any more")


def _token_state(now: float) -> ColumnElement[str]:
    column = bootstrap_tokens.c
    return case(
        (column.revoked_at.is_not(None), "revoked"),
        (column.expires_at <= rows.to_ms(now), "expired"),
        (column.usages_count >= column.max_usages, "exhausted"),
        else_="active",
    )


# ── enrollments ──


def enrollment(connection: Connection, peer: PeerId) -> Enrollment | None:
    row = connection.execute(ENROLLMENT, {"peer": str(peer)}).one_or_none()
    return None if row is None else rows.enrollment_of(row)


def enrollment_by_id(connection: Connection, enrollment_id: int) -> Enrollment | None:
    by_id = select(enrollment_requests).where(enrollment_requests.c.id == enrollment_id)
    row = connection.execute(by_id).one_or_none()
    return None if row is None else rows.enrollment_of(row)


def enrollments(connection: Connection, status: Status | None, limit: int) -> list[Enrollment]:
    """The newest `limit` of one status, or of any, newest first."""
    newest = select(enrollment_requests).order_by(enrollment_requests.c.id.desc()).limit(limit)
    if status is not None:
        newest = newest.where(enrollment_requests.c.status == status.value)
    return [rows.enrollment_of(row) for row in connection.execute(newest)]


def hold(connection: Connection, request: EnrollmentRequest, seen: Enrollment | None, now: float) -> None:
    """Keep the request PENDING. Raises RacedError, TooManyPendingError."""
    column = enrollment_requests.c
    waiting = and_(
        column.token_id == request.token_id, column.status == Status.PENDING.value, column.peer_id != str(request.peer)
    )
    connection.execute(TOKEN.with_for_update(), {"token_id": request.token_id})  # one counts at a time
    if connection.execute(select(func.count()).where(waiting)).scalar_one() >= MAX_PENDING_PER_TOKEN:
        raise TooManyPendingError("too many enrollments of this bootstrap token wait for approval")
    _resolve(connection, request, seen, {"status": Status.PENDING.value, "resolved_at": None}, now)


def grant(
    connection: Connection,
    request: EnrollmentRequest,
    seen: Enrollment | None,
    issue: Issue,
    now: float,
    owner: Owner | None = None,
) -> None:
    """Spend one usage of the token, make the enrollment APPROVED and the peer a node. Raises RacedError."""
    if owner is not None:
        access_queries.note_owner(connection, owner)
    _spend(connection, request.token_id, now)
    approved = {"status": Status.APPROVED.value, "resolved_at": rows.to_ms(now)}
    _resolve(connection, request, seen, approved, now)
    admit(connection, request.peer, request.role, request.labels, issue, now)


def reject(connection: Connection, seen: Enrollment, now: float) -> None:
    """Make the enrollment REJECTED. Raises RacedError."""
    _change(connection, seen, {"status": Status.REJECTED.value, "resolved_at": rows.to_ms(now)})


def _resolve(
    connection: Connection,
    request: EnrollmentRequest,
    seen: Enrollment | None,
    outcome: Mapping[str, object],
    now: float,
) -> None:
    values = {**rows.request_values(request), **outcome}
    if seen is not None:
        _change(connection, seen, values)
        return
    connection.execute(ADD_ENROLLMENT, {"created_at": rows.to_ms(now), **values})


def _change(connection: Connection, seen: Enrollment, values: Mapping[str, object]) -> None:
    column = enrollment_requests.c
    same = and_(column.id == seen.id, column.status == seen.status.value, column.token_id == seen.token_id)
    if connection.execute(update(enrollment_requests).where(same).values(dict(values))).rowcount != 1:
        raise RacedError("the enrollment changed")


# ── nodes ──


def node(connection: Connection, peer: PeerId) -> Node | None:
    row = connection.execute(NODE, {"peer": str(peer)}).one_or_none()
    return None if row is None else rows.node_of(row)


def admit(connection: Connection, peer: PeerId, role: str, labels: Mapping[str, str], issue: Issue, now: float) -> None:
    """Make the peer a node, or keep it one, with this credential as the last one issued to it."""
    values = {"peer_id": str(peer), "role": role, "labels_json": rows.labels_json(labels), **rows.issue_values(issue)}
    put_node(connection, {**values, "enrolled_at": rows.to_ms(now)})
    if role == ROLE_ROUTER:
        changed(connection, Topic.LEASES)  # which list its labels


def replace_issue(
    connection: Connection,
    peer: PeerId,
    presented: bytes,
    issue: Issue,
    labels: Mapping[str, str] | None = None,
    owner: Owner | None = None,
) -> None:
    """Put a new credential in the place of the one presented, if that is the last one issued. Raises RacedError."""
    if owner is not None:
        access_queries.note_owner(connection, owner)
    last = and_(nodes.c.peer_id == str(peer), nodes.c.biscuit_token == presented)
    values = dict(rows.issue_values(issue))
    if labels is not None:
        values["labels_json"] = rows.labels_json(labels)
        if (known := node(connection, peer)) and known.role == ROLE_ROUTER and known.labels != labels:
            changed(connection, Topic.LEASES)  # which list its labels
    if connection.execute(update(nodes).where(last).values(values)).rowcount != 1:
        raise RacedError("another credential was issued since")


# ── leases ──


def renew_lease(connection: Connection, lease: Lease) -> None:
    put_lease(connection, {"peer_id": str(lease.peer), **rows.lease_values(lease)})
    changed(connection, Topic.LEASES)


def leases(connection: Connection, now: float) -> tuple[Lease, ...]:
    """Those that have not run out at `now`, by peer ID, with the labels of their enrollments."""
    labelled = select(routers, nodes.c.labels_json).join(nodes, nodes.c.peer_id == routers.c.peer_id)
    live = labelled.where(routers.c.expires_at > rows.to_ms(now)).order_by(routers.c.peer_id)
    return tuple(rows.lease_of(row) for row in connection.execute(live))


# ── counts ──


def census(connection: Connection, now: float) -> Census:
    standing = case((node_is_banned(), "banned"), (nodes.c.expires_at > rows.to_ms(now), "admitted"), else_="expired")
    by_role = select(nodes.c.role, standing.label("state"), func.count()).group_by(nodes.c.role, text("state"))
    by_status = select(enrollment_requests.c.status, func.count()).group_by(enrollment_requests.c.status)
    ring = honoured(keys(connection), now)
    state = _token_state(now).label("state")
    by_state = select(state, func.count()).group_by(state)
    out = banned_peers(connection)
    return Census(
        nodes={(role, state): count for role, state, count in connection.execute(by_role)},
        enrollments={Status(status): count for status, count in connection.execute(by_status)},
        tokens={str(state): count for state, count in connection.execute(by_state)},
        signing_keys=len(ring),
        retiring_until=max((key.expires_at for key in ring if key.expires_at is not None), default=None),
        leases=tuple(lease for lease in leases(connection, now) if str(lease.peer) not in out),
        users=_count(connection, users),
        banned=_count(connection, banned_identities),
    )


def _count(connection: Connection, table: Table) -> int:
    count: int = connection.execute(select(func.count()).select_from(table)).scalar_one()
    return count
