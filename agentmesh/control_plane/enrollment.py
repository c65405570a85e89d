"""What becomes of an enrollment: pure decisions, no database, no clock.

An enrollment is a peer's request to be a member. It waits for an admin (PENDING) unless enrollments are approved
automatically, and it is resolved once: APPROVED mints a credential, REJECTED does not. An approved peer that asks again
gets a new credential at once; a rejected one may ask again only with another bootstrap token.
"""

import enum
from collections.abc import Mapping

from agentmesh.control_plane.records import BootstrapToken, Enrollment, Node, Status


class Input(enum.Enum):
    REQUEST = "request"  # the peer asks, and an admin decides
    REQUEST_AUTO = "request_auto"  # the peer asks, and its bootstrap token is enough
    APPROVE = "approve"  # an admin does
    REJECT = "reject"
    POLL = "poll"  # the peer looks what became of it


class Action(enum.Enum):
    HOLD = "hold"  # keep the request until an admin decides: PENDING
    GRANT = "grant"  # spend one usage of the token and mint: APPROVED
    REFUSE = "refuse"  # REJECTED
    REPORT = "report"  # say how things are; nothing changes
    CONFLICT = "conflict"  # it is resolved already
    UNKNOWN = "unknown"  # there is no such enrollment


ROWS: Mapping[Status, tuple[Action, ...]] = {
    #                 REQUEST        REQUEST_AUTO   APPROVE          REJECT           POLL
    Status.NEW: (Action.HOLD, Action.GRANT, Action.UNKNOWN, Action.UNKNOWN, Action.UNKNOWN),
    Status.PENDING: (Action.HOLD, Action.GRANT, Action.GRANT, Action.REFUSE, Action.REPORT),
    Status.APPROVED: (Action.GRANT, Action.GRANT, Action.CONFLICT, Action.CONFLICT, Action.REPORT),
    Status.REJECTED: (Action.REPORT, Action.REPORT, Action.CONFLICT, Action.CONFLICT, Action.REPORT),
}
ACTIONS = {(status, given): action for status, row in ROWS.items() for given, action in zip(Input, row, strict=True)}


def decide(enrollment: Enrollment | None, given: Input, *, token_id: str | None = None) -> Action:
    """What to do, of an enrollment as it is stored.

    Args:
        enrollment: None when the peer has none.
        given: what happened.
        token_id: of the bootstrap token presented with a request.
    """
    return ACTIONS[_status_for(enrollment, token_id), given]


def _status_for(enrollment: Enrollment | None, token_id: str | None) -> Status:
    if enrollment is None:
        return Status.NEW
    other_token = token_id is not None and token_id != enrollment.token_id
    # A rejection answers one invitation; without a way to be invited again the peer would be out for ever.
    return Status.NEW if enrollment.status is Status.REJECTED and other_token else enrollment.status


def token_refusal(token: BootstrapToken | None, now: float, *, owner_banned: bool = False) -> str | None:
    """Why the bootstrap token admits nobody at `now` (wall seconds), or None when it does."""
    if token is None:
        return "unknown bootstrap token"
    if token.revoked_at is not None:
        return "the bootstrap token is revoked"
    if token.expires_at <= now:
        return "the bootstrap token has expired"
    if token.usages >= token.max_usages:
        return "the bootstrap token is used up"
    if owner_banned:
        return "the owner of the bootstrap token is banned"
    return None


def role_refusal(token: BootstrapToken, node: Node | None, requested_role: str) -> str | None:
    """Why the bootstrap token does not admit this peer in this role, or None when it does.

    A member keeps the role that it was admitted with; for another it enrolls with another key.
    """
    if requested_role and requested_role != token.role:
        return f"the bootstrap token is for {token.role}"
    if node is not None and node.role != token.role:
        return f"the peer is enrolled as {node.role}"
    return None
