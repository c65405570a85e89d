"""Who becomes a member with a bootstrap token, and what became of it."""

import logging
from collections.abc import Callable
from functools import partial

import attrs

from agentmesh.control_plane.access import Standing
from agentmesh.control_plane.answers import approved, pending, rejected, request_name
from agentmesh.control_plane.authority import Authority
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.enrollment import Action, Input, decide, role_refusal, token_refusal
from agentmesh.control_plane.entitlement import Entitlement, entitle
from agentmesh.control_plane.labels import label_fault
from agentmesh.control_plane.proof import STALE, Proof, check_proof, parse_member, parse_peer
from agentmesh.control_plane.queries import TooManyPendingError
from agentmesh.control_plane.records import (
    BootstrapToken,
    EnrolledBy,
    Enrollment,
    EnrollmentRequest,
    Issue,
    Node,
    Owner,
    Status,
)
from agentmesh.control_plane.refusals import RefusedError, bad_request, unauthorized
from agentmesh.control_plane.store import Store, until_settled
from agentmesh.control_plane.tokens import full_role, token_id
from agentmesh.types import PeerId
from agentmesh.wire.messages.mesh.v1 import BootstrapEnrollRequest, BootstrapEnrollResponse

logger = logging.getLogger(__name__)

NO_ENROLLMENT = f"{STALE}, or no enrollment of this peer"  # one text for every failure: it tells nobody who is enrolled
TURNED_DOWN = "an admin turned this enrollment down"
BANNED = "the peer is banned"


@attrs.frozen
class Asked:
    """A request to enroll, checked."""

    peer: PeerId
    token_id: str
    role: str  # empty: whatever the token is for
    labels: dict[str, str]
    name: str  # of the request, as in Issue


@attrs.frozen
class Admissible:
    """A request that may be granted, and as what."""

    request: EnrollmentRequest
    owner: Owner
    entitlement: Entitlement


class Members:
    """Every call raises StoreError when the database does not answer.

    Args:
        wall_clock: gives the seconds since 1970.
    """

    def __init__(self, store: Store, authority: Authority, config: Config, wall_clock: Callable[[], float]) -> None:
        self._store, self._authority, self._config, self._wall_clock = store, authority, config, wall_clock
        self._asks = Input.REQUEST_AUTO if config.auto_approve_enrollment else Input.REQUEST

    async def enroll(self, message: BootstrapEnrollRequest) -> BootstrapEnrollResponse:
        """Admit a peer with a bootstrap token, or keep its request for an admin. A member gets a new credential.

        What does not admit the peer (a token, a ban, a label, an admin) is an answer and no error: status REJECTED.

        Raises:
            RefusedError: 400 malformed, 401 no proof.
        """
        peer = parse_member(message.peer_id, message.public_key)
        proof = Proof("enroll", message.challenge_unix_ms, message.challenge_signature)
        check_proof(peer, proof, self._wall_clock())
        if fault := label_fault(message.labels):
            raise bad_request(fault)
        role = full_role(message.requested_role) if message.requested_role else ""
        name = request_name(proof, message.bootstrap_token.encode())
        asked = Asked(peer, token_id(message.bootstrap_token), role, message.labels, name)
        return await until_settled(partial(self._enroll_once, asked))

    async def _enroll_once(self, asked: Asked) -> BootstrapEnrollResponse:
        known = await self._store.look_up(asked.peer, asked.token_id)
        enrollment, node, standing = known.enrollment, known.node, known.standing
        if node is not None and node.issue.request == asked.name and not standing.banned:
            return self._approved(node.issue)  # sent again because our answer was lost: no second usage
        found = self._admissible(asked, known.token, node, standing)
        if isinstance(found, str):
            logger.info("enrollment refused", extra={"peer": asked.peer, "token": asked.token_id, "reason": found})
            return rejected(found)
        match decide(enrollment, self._asks, token_id=found.request.token_id):
            case Action.GRANT:
                return self._approved(await self._grant(found, enrollment, asked.name))
            case Action.HOLD:
                return await self._hold(found.request, enrollment)
            case _:
                return rejected(TURNED_DOWN)

    def _admissible(
        self, asked: Asked, token: BootstrapToken | None, node: Node | None, standing: Standing
    ) -> Admissible | str:
        """What may be granted; or why nothing may."""
        if standing.banned:
            return BANNED
        refusal = token_refusal(token, self._wall_clock(), owner_banned=standing.token_banned)
        if token is None or refusal:
            return refusal or ""
        if refusal := role_refusal(token, node, asked.role):
            return refusal
        owner = token_member(asked.peer, standing)
        entitlement = entitle(standing.policy, token.role, owner, asked.labels if node is None else node.labels)
        # A member keeps its labels, but for those that the policy does not allow any more.
        refusal = (entitlement.label_refusal if node is None else None) or entitlement.budget_refusal
        request = EnrollmentRequest(asked.peer, token.id, token.role, entitlement.labels)
        return refusal or Admissible(request, owner, entitlement)

    async def _grant(self, found: Admissible, seen: Enrollment | None, name: str) -> Issue:
        request, entitlement = found.request, found.entitlement
        say_dropped(request.peer, entitlement)
        issue = self._authority.issue(
            request.peer, request.role, request.labels, name, facts=entitlement.facts, ends_at=found.owner.ends_at
        )
        await self._store.grant(request, seen, issue, self._wall_clock(), found.owner)
        logger.info("enrolled", extra={"peer": request.peer, "role": request.role, "token": request.token_id})
        return issue

    async def _hold(self, request: EnrollmentRequest, seen: Enrollment | None) -> BootstrapEnrollResponse:
        if seen is None or seen.status is not Status.PENDING or _request_of(seen) != request:
            try:
                await self._store.hold(request, seen, self._wall_clock())
            except TooManyPendingError as exc:
                return rejected(str(exc))
            logger.info("enrollment waits for an admin", extra={"peer": request.peer, "token": request.token_id})
        return pending(self._config.poll_interval)

    async def enrollment_status(self, peer_id: str, proof: Proof) -> BootstrapEnrollResponse:
        """What became of a peer's enrollment, with the last credential issued to it. Issues nothing.

        Raises:
            RefusedError: 401, with the same text whatever is wrong.
        """
        try:
            peer = parse_peer(peer_id)
            check_proof(peer, proof, self._wall_clock())
        except RefusedError as exc:
            raise unauthorized(NO_ENROLLMENT) from exc
        known = await self._store.look_up(peer)
        enrollment = known.enrollment
        if enrollment is None or decide(enrollment, Input.POLL) is not Action.REPORT or known.standing.banned:
            raise unauthorized(NO_ENROLLMENT)
        return self._report(enrollment, known.node)

    def _report(self, enrollment: Enrollment, node: Node | None) -> BootstrapEnrollResponse:
        if enrollment.status is Status.APPROVED and node is not None:
            return self._approved(node.issue)
        return rejected(TURNED_DOWN) if enrollment.status is Status.REJECTED else pending(self._config.poll_interval)

    def _approved(self, issue: Issue) -> BootstrapEnrollResponse:
        return approved(issue, self._authority.public_key)


def token_member(peer: PeerId, standing: Standing) -> Owner:
    """Whose a peer is that shows a bootstrap token: the token's owner's, unless a token brought it here before."""
    if standing.owner is not None and standing.owner.enrolled_by is EnrolledBy.TOKEN:
        return standing.owner
    of_token = standing.token_owner
    return Owner(peer, EnrolledBy.TOKEN, of_token.identity, autonomous_recovery=of_token.autonomous_recovery)


def say_dropped(peer: PeerId, entitlement: Entitlement) -> None:
    """Tell the operator which labels a member loses."""
    for label in entitlement.dropped:
        logger.warning("the policy does not allow the label any more: dropped", extra={"peer": peer, "label": label})


def _request_of(enrollment: Enrollment) -> EnrollmentRequest:
    return EnrollmentRequest(enrollment.peer, enrollment.token_id, enrollment.role, enrollment.labels)
