"""Whom a member lets in, and who may call what: the decisions that rest on a verified credential."""

from agentmesh.abc import Admission
from agentmesh.credentials import ROLE_ROUTER, Credential
from agentmesh.membership.membership import Membership
from agentmesh.protocols.auth import AuthPolicy
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.services import Authorize
from agentmesh.types import PeerId


def level_of(credential: Credential) -> Admission:
    """What a verified credential opens."""
    return Admission.ROUTER if credential.role == ROLE_ROUTER else Admission.MEMBER


def auth_policy(membership: Membership, admissions: AdmissionBook) -> AuthPolicy:
    """Let in whoever shows a credential that the membership honours, until it expires."""

    def admit(peer: PeerId, credential: Credential) -> None:
        admissions.admit(peer, level_of(credential), credential.expires_at)

    return AuthPolicy(verify=membership.verify, own=membership.token, admit=admit)


def service_policy(membership: Membership) -> Authorize:
    """Let every member call every service, and nobody else."""

    def authorize(token: bytes, peer: PeerId, type: str, name: str) -> None:
        membership.verify(token, peer)

    return authorize
