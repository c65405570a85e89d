"""Whom a member lets in, and who may call what: the decisions that rest on a verified credential."""

from collections.abc import Set

from agentmesh.abc import Admission
from agentmesh.authorization import Call
from agentmesh.credentials import ROLE_ROUTER, Credential
from agentmesh.membership.membership import Membership
from agentmesh.membership.rulebook import Rulebook
from agentmesh.protocols.auth import AuthPolicy
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.runtime.host import Host
from agentmesh.services import Authorize
from agentmesh.types import PeerId


def level_of(credential: Credential) -> Admission:
    """What a verified credential opens."""
    return Admission.ROUTER if credential.role == ROLE_ROUTER else Admission.MEMBER


def auth_policy(membership: Membership, admissions: AdmissionBook) -> AuthPolicy:
    """Let in whoever shows a credential that the membership honours, until it expires."""

    def admit(peer: PeerId, credential: Credential) -> None:
        admissions.admit(peer, level_of(credential), credential.expires_at)

    def is_banned(peer: PeerId) -> bool:
        return peer in membership.bans

    return AuthPolicy(verify=membership.verify, own=membership.token, admit=admit, is_banned=is_banned)


def admission_book(membership: Membership) -> AdmissionBook:
    """Of a host whose doors are shut to those who are banned."""
    return AdmissionBook(membership.wall_clock, is_barred=membership.bans.__contains__)


def enforce_bans(membership: Membership, host: Host) -> None:
    """Put out whoever is banned from now on: admission, sessions, and whatever hangs on them."""

    def put_out(peers: Set[PeerId]) -> None:
        for peer in peers:
            host.admissions.revoke(peer)
        for session in host.connections:
            if session.peer in peers:
                session.abort("the peer is banned")

    membership.bans.on_ban(put_out)


def service_policy(membership: Membership, rules: Rulebook) -> Authorize:
    """Allow what the mesh's policy grants the caller here, and nothing else."""

    def authorize(token: bytes, peer: PeerId, call: Call) -> None:
        rules.check(membership.verify(token, peer), membership.credential, call, membership.trusted)

    return authorize
