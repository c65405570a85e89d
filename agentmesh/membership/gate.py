"""What a membership lets in: the auth protocol's policy over a host's admission book."""

from agentmesh.abc import Admission
from agentmesh.credentials import ROLE_ROUTER, Credential
from agentmesh.membership.membership import Membership
from agentmesh.protocols.auth import AuthPolicy
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.types import PeerId


def level_of(credential: Credential) -> Admission:
    """What a verified credential opens."""
    return Admission.ROUTER if credential.role == ROLE_ROUTER else Admission.MEMBER


def auth_policy(membership: Membership, admissions: AdmissionBook) -> AuthPolicy:
    """Let in whoever shows a credential that the membership honours, until it expires."""

    def admit(peer: PeerId, credential: Credential) -> None:
        admissions.admit(peer, level_of(credential), credential.expires_at)

    return AuthPolicy(verify=membership.verify, own=membership.token, admit=admit)
