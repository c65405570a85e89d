"""New credentials for old."""

import hmac
import logging
from collections.abc import Callable
from functools import partial

import attrs

from agentmesh.control_plane.answers import request_name
from agentmesh.control_plane.authority import Authority
from agentmesh.control_plane.entitlement import entitle
from agentmesh.control_plane.members import BANNED, say_dropped
from agentmesh.control_plane.oidc.tokens import Said
from agentmesh.control_plane.policy.model import Policy
from agentmesh.control_plane.proof import Proof, check_proof, parse_peer
from agentmesh.control_plane.records import EnrolledBy, Issue, Node, Owner
from agentmesh.control_plane.refusals import RefusedError, forbidden, unauthorized
from agentmesh.control_plane.registration import Registration
from agentmesh.control_plane.store import Store, until_settled
from agentmesh.control_plane.times import to_datetime
from agentmesh.types import PeerId
from agentmesh.wire.messages.mesh.v1 import TokenRefreshRequest, TokenRefreshResponse

logger = logging.getLogger(__name__)


class Renewals:
    """Every call raises StoreError when the database does not answer.

    Args:
        wall_clock: gives the seconds since 1970.
    """

    def __init__(
        self, store: Store, authority: Authority, registration: Registration, wall_clock: Callable[[], float]
    ) -> None:
        self._store, self._authority, self._registration = store, authority, registration
        self._wall_clock = wall_clock

    async def refresh(self, message: TokenRefreshRequest, presented: bytes) -> TokenRefreshResponse:
        """Issue a new credential for the last one issued to the peer, by the policy of now.

        Labels that the policy does not allow any more are left out of it. With a token of the identity provider that
        the peer registered by, what that says now counts, and for as long as it does then.

        Raises:
            RefusedError: 400 malformed; 401 no proof, not enrolled, the provider's word is too old, or `presented` does
                not admit the peer or is not the last one; 403 banned, the role is not bound any more, or the token is
                of somebody else; 503 the provider does not answer.
        """
        peer = parse_peer(message.peer_id)
        proof = Proof("refresh", message.challenge_unix_ms, message.challenge_signature)
        check_proof(peer, proof, self._wall_clock())
        said = await self._registration.verify(message.jwt, peer) if message.jwt else None
        name = request_name(proof, presented)
        issue = await until_settled(partial(self._refresh_once, peer, presented, said, name))
        return TokenRefreshResponse(biscuit_token=issue.credential, expire_time=to_datetime(issue.expires_at))

    async def _refresh_once(self, peer: PeerId, presented: bytes, said: Said | None, name: str) -> Issue:
        known = await self._store.look_up(peer)
        node, standing = known.node, known.standing
        owner = standing.owner or Owner(peer, EnrolledBy.TOKEN)
        self._check(peer, presented, owner)
        if standing.banned:
            raise forbidden(BANNED)
        if node is None:
            raise unauthorized("the peer is not enrolled")
        if node.issue.request == name:
            return node.issue  # sent again because our answer was lost
        if not hmac.compare_digest(node.issue.credential, presented):
            logger.warning("superseded credential presented", extra={"peer": peer})
            raise unauthorized("the credential is not the last one issued to the peer")
        return await self._renew(node, standing.policy, self._as_said_now(owner, said), said, name)

    def _as_said_now(self, owner: Owner, said: Said | None) -> Owner:
        """The owner, by what its provider says now. Raises RefusedError (403): the token is of somebody else."""
        if said is None:
            return owner
        if owner.enrolled_by is EnrolledBy.TOKEN or said.identity != owner.identity:
            raise forbidden("the peer is not whose the token is")
        renewed = self._registration.owner(owner.peer, said)
        return attrs.evolve(renewed, autonomous_recovery=owner.autonomous_recovery)

    async def _renew(self, node: Node, policy: Policy, owner: Owner, said: Said | None, name: str) -> Issue:
        if owner.ends_at <= self._wall_clock():
            raise unauthorized("the session with the identity provider is over; register again")
        if owner.enrolled_by is not EnrolledBy.TOKEN and node.role not in policy.bound(owner.known):
            raise forbidden(f"the policy does not bind {node.role} to this peer any more")
        entitlement = entitle(policy, node.role, owner, node.labels)
        if refusal := entitlement.budget_refusal:
            raise forbidden(refusal)
        say_dropped(node.peer, entitlement)
        ends_at = owner.ends_at if said is None else min(owner.ends_at, said.expires_at)
        issue = self._authority.issue(
            node.peer, node.role, entitlement.labels, name, facts=entitlement.facts, ends_at=ends_at
        )
        await self._store.replace_issue(node.peer, node.issue.credential, issue, entitlement.labels, owner)
        logger.info("refreshed", extra={"peer": node.peer, "role": node.role})
        return issue

    def _check(self, peer: PeerId, presented: bytes, owner: Owner) -> None:
        """Raises RefusedError (401): what is presented admits nobody.

        A node that recovers by itself may be away for longer than its credential, and the key that signed it, last: the
        same bytes as those last issued and the proof of its own key are enough then.
        """
        try:
            self._authority.verify(presented, peer)
        except RefusedError:
            if not owner.autonomous_recovery:
                raise
            logger.info("recovering by itself", extra={"peer": peer})
