"""What the database does not keep for ever: members that have not been seen for long, and what hangs on them."""

from sqlalchemy import Connection, and_, delete, select

from agentmesh.control_plane import rows
from agentmesh.control_plane.schema import bootstrap_tokens, enrollment_requests, node_owners, nodes, routers


def forget(connection: Connection, now: float, retention: float) -> int:
    """Delete what ended more than `retention` seconds before `now`. Bans stay.

    Returns:
        How many nodes there were among it: peers whose last credential has expired for so long.
    """
    horizon = rows.to_ms(now - retention)
    gone = nodes.c.expires_at < horizon
    peers = select(nodes.c.peer_id).where(gone)
    for table in (enrollment_requests, node_owners, routers):
        connection.execute(delete(table).where(table.c.peer_id.in_(peers)))
    deleted = connection.execute(delete(nodes).where(gone)).rowcount
    connection.execute(delete(routers).where(routers.c.expires_at < horizon))
    # Who was turned away stays so while the bootstrap token is good, or the peer could ask with it again.
    good = select(bootstrap_tokens.c.id).where(
        and_(bootstrap_tokens.c.revoked_at.is_(None), bootstrap_tokens.c.expires_at > rows.to_ms(now))
    )
    unanswered = and_(
        enrollment_requests.c.created_at < horizon,
        enrollment_requests.c.peer_id.not_in(select(nodes.c.peer_id)),
        enrollment_requests.c.token_id.not_in(good),
    )
    connection.execute(delete(enrollment_requests).where(unanswered))
    return deleted
