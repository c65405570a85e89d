"""Every status and input is decided, and the decisions are those promised."""

import pytest

from agentmesh.control_plane.enrollment import ACTIONS, Action, Input, decide, role_refusal, token_refusal
from agentmesh.control_plane.records import BootstrapToken, Enrollment, Issue, Node, Status
from agentmesh.types import PeerId

PEER = PeerId.from_ed25519(bytes(32))
NODE, ROUTER = "mesh:role:node", "mesh:role:router"


def enrollment(status: Status, token_id: str = "t") -> Enrollment:
    return Enrollment(1, PEER, token_id, NODE, {}, status, created_at=0.0)


def token(role: str = NODE, usages: int = 0, revoked_at: float | None = None) -> BootstrapToken:
    return BootstrapToken(
        "t", role, max_usages=3, created_at=0.0, expires_at=100.0, usages=usages, revoked_at=revoked_at
    )


def test_every_status_and_input_is_decided() -> None:
    assert ACTIONS.keys() == {(status, given) for status in Status for given in Input}


@pytest.mark.parametrize("given", Input)
def test_nothing_but_a_request_or_an_approval_mints(given: Input) -> None:
    mints = {status for status in Status if ACTIONS[status, given] is Action.GRANT}
    assert (
        mints
        == {
            Input.REQUEST: {Status.APPROVED},
            Input.REQUEST_AUTO: {Status.NEW, Status.PENDING, Status.APPROVED},
            Input.APPROVE: {Status.PENDING},
            Input.REJECT: set[Status](),
            Input.POLL: set[Status](),
        }[given]
    )


@pytest.mark.parametrize("status", [Status.APPROVED, Status.REJECTED])
@pytest.mark.parametrize("given", [Input.APPROVE, Input.REJECT])
def test_what_is_resolved_stays_resolved(status: Status, given: Input) -> None:
    assert decide(enrollment(status), given) is Action.CONFLICT


def test_a_rejected_peer_needs_another_invitation() -> None:
    rejected = enrollment(Status.REJECTED, "old")
    assert decide(rejected, Input.REQUEST, token_id="old") is Action.REPORT
    assert decide(rejected, Input.REQUEST_AUTO, token_id="old") is Action.REPORT
    assert decide(rejected, Input.REQUEST, token_id="new") is Action.HOLD


def test_without_an_enrollment_there_is_nothing_to_poll_or_approve() -> None:
    assert {decide(None, given) for given in (Input.POLL, Input.APPROVE, Input.REJECT)} == {Action.UNKNOWN}


@pytest.mark.parametrize(
    ("presented", "now", "reason"),
    [
        (None, 0.0, "unknown"),
        (token(revoked_at=1.0), 0.0, "revoked"),
        (token(), 100.0, "expired"),
        (token(usages=3), 0.0, "used up"),
        (token(usages=2), 99.9, None),
    ],
)
def test_what_a_token_is_refused_for(presented: BootstrapToken | None, now: float, reason: str | None) -> None:
    refusal = token_refusal(presented, now)
    assert refusal == reason or (reason or "?") in (refusal or "")


def test_a_member_keeps_its_role() -> None:
    node = Node(PEER, NODE, {}, 0.0, Issue(b"", 0.0, ""))
    assert role_refusal(token(NODE), node, "") is None
    assert role_refusal(token(ROUTER), node, "") == "the peer is enrolled as mesh:role:node"
    assert role_refusal(token(NODE), None, ROUTER) == "the bootstrap token is for mesh:role:node"
    assert role_refusal(token(ROUTER), None, ROUTER) is None
