"""Admission on an identity provider's word: POST /register."""

import logging
from collections.abc import Callable
from functools import partial

import attrs

from agentmesh.control_plane.answers import request_name
from agentmesh.control_plane.authority import Authority
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.entitlement import Entitlement, entitle
from agentmesh.control_plane.labels import label_fault
from agentmesh.control_plane.members import BANNED
from agentmesh.control_plane.oidc.provider import ProviderError
from agentmesh.control_plane.oidc.tokens import Said, TokenError
from agentmesh.control_plane.oidc.verifier import TokenVerifier
from agentmesh.control_plane.policy.model import Policy
from agentmesh.control_plane.proof import Proof, check_proof, parse_member
from agentmesh.control_plane.records import EnrolledBy, Issue, Owner, User
from agentmesh.control_plane.refusals import bad_request, forbidden, unauthorized, unavailable
from agentmesh.control_plane.store import Store, until_settled
from agentmesh.control_plane.times import to_datetime
from agentmesh.control_plane.tokens import full_role
from agentmesh.credentials import ROLE_NODE
from agentmesh.types import PeerId
from agentmesh.wire.messages.mesh.v1 import EnrollRequest, EnrollResponse

logger = logging.getLogger(__name__)

PROVIDER_RETRY_AFTER = 5  # seconds
OTHER_ROLE = "the peer is enrolled as"


@attrs.frozen
class Applicant:
    """A peer that registers, and what its provider says of whoever runs it."""

    peer: PeerId
    said: Said
    role: str
    labels: dict[str, str]
    name: str  # of the request, as in Issue


class Registration:
    """Every call raises StoreError when the database does not answer.

    Args:
        wall_clock: gives the seconds since 1970.
    """

    def __init__(
        self,
        store: Store,
        authority: Authority,
        verifier: TokenVerifier,
        config: Config,
        wall_clock: Callable[[], float],
    ) -> None:
        self._store, self._authority, self._verifier = store, authority, verifier
        self._config, self._wall_clock = config, wall_clock

    async def register(self, message: EnrollRequest) -> EnrollResponse:
        """Admit a peer on what an identity provider says of whoever runs it, or give it another credential.

        Raises:
            RefusedError: 400 malformed; 401 no proof, or a token that admits nobody; 403 banned, the policy does not
                bind the role to whoever that is or does not allow a label; 503 the provider does not answer.
        """
        peer = parse_member(message.peer_id, message.public_key)
        proof = Proof("register", message.challenge_unix_ms, message.challenge_signature)
        check_proof(peer, proof, self._wall_clock())
        if fault := label_fault(message.labels):
            raise bad_request(fault)
        role = full_role(message.requested_role or ROLE_NODE)
        said = await self.verify(message.jwt, peer)
        applicant = Applicant(peer, said, role, message.labels, request_name(proof, message.jwt.encode()))
        issue = await until_settled(partial(self._register_once, applicant))
        leases = await self._store.live_leases(self._wall_clock())
        return EnrollResponse(
            biscuit_token=issue.credential,
            control_plane_public_key=self._authority.public_key,
            router_addresses=[str(address) for lease in leases for address in lease.addresses],
            expire_time=to_datetime(issue.expires_at),
        )

    async def verify(self, token: str, peer: PeerId | None = None) -> Said:
        """What a token says. Raises RefusedError: 401 it admits nobody, 503 its provider does not answer.

        Args:
            peer: whom its nonce has to name, if nonces have to name anybody; None for a token that registers nobody.
        """
        try:
            return await self._verifier.verify(token, None if peer is None else str(peer))
        except TokenError as exc:
            raise unauthorized(str(exc)) from exc
        except ProviderError as exc:
            logger.warning("token not verified", extra={"reason": exc})
            raise unavailable("the identity provider does not answer", PROVIDER_RETRY_AFTER) from exc

    def owner(self, peer: PeerId, said: Said) -> Owner:
        """What is noted of a peer whose provider says this now."""
        enrolled_by, lasts = EnrolledBy.PERSON, self._config.oidc_session_ttl
        if said.issuer.workload:
            enrolled_by, lasts = EnrolledBy.WORKLOAD, self._config.workload_session_ttl
        return Owner(peer, enrolled_by, said.identity, said.claims, self._wall_clock() + lasts)

    async def _register_once(self, applicant: Applicant) -> Issue:
        known, now = await self._store.look_up(applicant.peer), self._wall_clock()
        owner, standing = self.owner(applicant.peer, applicant.said), known.standing
        if standing.banned or await self._store.access.is_banned(owner.identity):
            raise forbidden(BANNED)
        if known.node is not None and known.node.issue.request == applicant.name:
            return known.node.issue  # sent again because our answer was lost
        if known.node is not None and known.node.role != applicant.role:
            raise forbidden(f"{OTHER_ROLE} {known.node.role}")
        if standing.owner is not None and standing.owner.enrolled_by is not EnrolledBy.TOKEN:
            owner = attrs.evolve(owner, autonomous_recovery=standing.owner.autonomous_recovery)
        entitlement = entitled(standing.policy, applicant.role, owner, applicant.labels)
        issue = self._authority.issue(
            applicant.peer,
            applicant.role,
            entitlement.labels,
            applicant.name,
            facts=entitlement.facts,
            ends_at=min(owner.ends_at, applicant.said.expires_at),
        )
        user = User(applicant.said.identity, applicant.said.issuer.url, applicant.said.email, now)
        await self._store.access.admit(owner, user, applicant.role, entitlement.labels, issue, now)
        logger.info(
            "registered", extra={"peer": applicant.peer, "role": applicant.role, "identity": applicant.said.identity}
        )
        return issue


def entitled(policy: Policy, role: str, owner: Owner, labels: dict[str, str]) -> Entitlement:
    """What the policy gives somebody who registers. Raises RefusedError (403): not this role, or not all of it."""
    if role not in policy.bound(owner.known):
        raise forbidden(f"the policy does not bind {role} to this identity")
    entitlement = entitle(policy, role, owner, labels)
    if refusal := entitlement.label_refusal or entitlement.budget_refusal:
        raise forbidden(refusal)
    return entitlement
