"""Who becomes and stays a member: enrollment, its approval, and new credentials for old."""

import hashlib
import logging
from collections.abc import Callable
from functools import partial

import attrs

from agentmesh.control_plane.authority import Authority
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.enrollment import Action, Input, decide, role_refusal, token_refusal
from agentmesh.control_plane.labels import label_fault
from agentmesh.control_plane.proof import STALE, Proof, check_proof, parse_peer
from agentmesh.control_plane.queries import TooManyPendingError
from agentmesh.control_plane.records import Enrollment, EnrollmentRequest, Issue, Node, Status
from agentmesh.control_plane.refusals import RefusedError, bad_request, unauthorized
from agentmesh.control_plane.store import Store, until_settled
from agentmesh.control_plane.times import to_datetime
from agentmesh.control_plane.tokens import full_role, token_id
from agentmesh.types import PeerId
from agentmesh.wire.messages.mesh.v1 import (
    BootstrapEnrollRequest,
    BootstrapEnrollResponse,
    EnrollmentStatus,
    TokenRefreshRequest,
    TokenRefreshResponse,
)

logger = logging.getLogger(__name__)

NO_ENROLLMENT = f"{STALE}, or no enrollment of this peer"  # one text for every failure: it tells nobody who is enrolled
TURNED_DOWN = "an admin turned this enrollment down"


@attrs.frozen
class Asked:
    """A request to enroll, checked."""

    peer: PeerId
    token_id: str
    role: str  # empty: whatever the token is for
    labels: dict[str, str]
    name: str  # of the request, as in Issue


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

        A token that does not admit the peer, and an admin's refusal, are answers and not errors: status REJECTED.

        Raises:
            RefusedError: 400 malformed, 401 no proof.
        """
        peer = parse_peer(message.peer_id)
        if message.public_key not in (peer.ed25519, _encoded_key(peer)):
            raise bad_request("peer_id is not that of public_key")
        proof = Proof("enroll", message.challenge_unix_ms, message.challenge_signature)
        check_proof(peer, proof, self._wall_clock())
        if fault := label_fault(message.labels):
            raise bad_request(fault)
        role = full_role(message.requested_role) if message.requested_role else ""
        name = _request_name(proof, message.bootstrap_token.encode())
        asked = Asked(peer, token_id(message.bootstrap_token), role, message.labels, name)
        answer = await until_settled(partial(self._enroll_once, asked))
        answer.router_addresses = await self._router_addresses()
        return answer

    async def _enroll_once(self, asked: Asked) -> BootstrapEnrollResponse:
        token, enrollment, node = await self._store.look_up(asked.peer, asked.token_id)
        if node is not None and node.issue.request == asked.name:
            return self._approved(node.issue)  # sent again because our answer was lost: no second usage
        refusal = token_refusal(token, self._wall_clock())
        if token is not None and refusal is None:
            refusal = role_refusal(token, node, asked.role)
        if token is None or refusal is not None:
            logger.info("enrollment refused", extra={"peer": asked.peer, "token": asked.token_id, "reason": refusal})
            return _rejected(refusal or "")
        request = EnrollmentRequest(asked.peer, token.id, token.role, asked.labels if node is None else node.labels)
        match decide(enrollment, self._asks, token_id=token.id):
            case Action.GRANT:
                return self._approved(await self._grant(request, enrollment, asked.name))
            case Action.HOLD:
                return await self._hold(request, enrollment)
            case _:
                return _rejected(TURNED_DOWN)

    async def _grant(self, request: EnrollmentRequest, seen: Enrollment | None, name: str) -> Issue:
        issue = self._authority.issue(request.peer, request.role, request.labels, name)
        await self._store.grant(request, seen, issue, self._wall_clock())
        logger.info("enrolled", extra={"peer": request.peer, "role": request.role, "token": request.token_id})
        return issue

    async def _hold(self, request: EnrollmentRequest, seen: Enrollment | None) -> BootstrapEnrollResponse:
        if seen is None or seen.status is not Status.PENDING or _request_of(seen) != request:
            try:
                await self._store.hold(request, seen, self._wall_clock())
            except TooManyPendingError as exc:
                return _rejected(str(exc))
            logger.info("enrollment waits for an admin", extra={"peer": request.peer, "token": request.token_id})
        return self._pending()

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
        _, enrollment, node = await self._store.look_up(peer, token_id(""))
        if enrollment is None or decide(enrollment, Input.POLL) is not Action.REPORT:
            raise unauthorized(NO_ENROLLMENT)
        answer = self._report(enrollment, node)
        answer.router_addresses = await self._router_addresses()
        return answer

    async def refresh(self, message: TokenRefreshRequest, presented: bytes) -> TokenRefreshResponse:
        """Issue a new credential for the last one issued to the peer.

        Raises:
            RefusedError: 400 malformed, 401 no proof, not enrolled, or `presented` does not admit the peer or is not
                the last one.
        """
        peer = parse_peer(message.peer_id)
        proof = Proof("refresh", message.challenge_unix_ms, message.challenge_signature)
        check_proof(peer, proof, self._wall_clock())
        self._authority.verify(presented, peer)
        issue = await until_settled(partial(self._refresh_once, peer, presented, _request_name(proof, presented)))
        return TokenRefreshResponse(biscuit_token=issue.credential, expire_time=to_datetime(issue.expires_at))

    async def _refresh_once(self, peer: PeerId, presented: bytes, name: str) -> Issue:
        node = await self._store.node(peer)
        if node is None:
            raise unauthorized("the peer is not enrolled")
        if node.issue.request == name:
            return node.issue  # sent again because our answer was lost
        if node.issue.credential != presented:
            logger.warning("superseded credential presented", extra={"peer": peer})
            raise unauthorized("the credential is not the last one issued to the peer")
        issue = self._authority.issue(peer, node.role, node.labels, name)
        await self._store.replace_issue(peer, presented, issue)
        logger.info("refreshed", extra={"peer": peer, "role": node.role})
        return issue

    async def _router_addresses(self) -> list[str]:
        leases = await self._store.live_leases(self._wall_clock())
        return [str(address) for lease in leases for address in lease.addresses]

    def _report(self, enrollment: Enrollment, node: Node | None) -> BootstrapEnrollResponse:
        if enrollment.status is Status.APPROVED and node is not None:
            return self._approved(node.issue)
        return _rejected(TURNED_DOWN) if enrollment.status is Status.REJECTED else self._pending()

    def _approved(self, issue: Issue) -> BootstrapEnrollResponse:
        return BootstrapEnrollResponse(
            status=EnrollmentStatus.APPROVED,
            biscuit_token=issue.credential,
            control_plane_public_key=self._authority.public_key,
            expire_time=to_datetime(issue.expires_at),
        )

    def _pending(self) -> BootstrapEnrollResponse:
        seconds = max(1, round(self._config.poll_interval))
        return BootstrapEnrollResponse(status=EnrollmentStatus.PENDING, poll_interval_seconds=seconds)


def _rejected(reason: str) -> BootstrapEnrollResponse:
    return BootstrapEnrollResponse(status=EnrollmentStatus.REJECTED, error_message=reason)


def _request_name(proof: Proof, presented: bytes) -> str:
    """Tells one signed request from every other: the same again is a resend, and spends nothing."""
    return hashlib.sha256(b"%s %d %s" % (proof.purpose.encode(), proof.unix_ms, presented)).hexdigest()


def _request_of(enrollment: Enrollment) -> EnrollmentRequest:
    return EnrollmentRequest(enrollment.peer, enrollment.token_id, enrollment.role, enrollment.labels)


def _encoded_key(peer: PeerId) -> bytes:
    return peer.multihash[2:]  # an Ed25519 peer's ID is its key in libp2p's encoding
