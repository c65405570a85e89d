"""What the control plane knows, as values. Instants are wall-clock seconds since 1970, to the millisecond."""

import enum
import math
from collections.abc import Mapping

import attrs

from agentmesh.types import Address, PeerId


class Status(enum.Enum):
    """Of an enrollment."""

    NEW = "new"  # never stored: there is no request of this peer
    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"


@attrs.frozen
class BootstrapToken:
    """An invitation to enroll. Its value is not here: only who holds it knows it."""

    id: str  # sha256 of the value, in hex
    role: str
    max_usages: int
    created_at: float
    expires_at: float
    description: str = ""
    usages: int = 0
    revoked_at: float | None = None


@attrs.frozen
class EnrollmentRequest:
    """What a peer asked for, checked. `role` is the token's."""

    peer: PeerId
    token_id: str
    role: str
    labels: Mapping[str, str]


@attrs.frozen
class Enrollment:
    """A request and what became of it."""

    id: int
    peer: PeerId
    token_id: str
    role: str
    labels: Mapping[str, str]
    status: Status
    created_at: float
    resolved_at: float | None = None


@attrs.frozen
class Issue:
    """A credential as issued. `request` names the signed request that it answered: a resend gets the same again."""

    credential: bytes = attrs.field(repr=False)
    expires_at: float
    request: str


@attrs.frozen
class Node:
    """A peer that was admitted, node or router, with the last credential issued to it."""

    peer: PeerId
    role: str
    labels: Mapping[str, str]
    enrolled_at: float
    issue: Issue


class EnrolledBy(enum.Enum):
    """On whose word a node was admitted."""

    TOKEN = "bootstrap"  # a bootstrap token's
    PERSON = "oidc"  # an identity provider's, about a person
    WORKLOAD = "workload"  # … about a program


@attrs.frozen
class Owner:
    """Whose a node is, and what is known of it beside its key."""

    peer: PeerId
    enrolled_by: EnrolledBy
    identity: str | None = None  # "<issuer>|<subject>"; None: nobody's
    claims: Mapping[str, frozenset[str]] = attrs.field(factory=dict[str, frozenset[str]])
    session_ends_at: float | None = None  # when the provider's word is too old to refresh on; None: never
    autonomous_recovery: bool = False  # its last credential is redeemed although its key has retired

    @property
    def ends_at(self) -> float:
        """`session_ends_at`, as a number whatever it is."""
        return math.inf if self.session_ends_at is None else self.session_ends_at

    @property
    def known(self) -> Mapping[str, frozenset[str]]:
        """What bindings and targets name it by: its claims, and its peer ID."""
        return {**self.claims, "node": frozenset({str(self.peer)})}


@attrs.frozen
class TokenOwner:
    """Whose a bootstrap token is, and whether its nodes recover by themselves."""

    identity: str | None = None
    autonomous_recovery: bool = False


@attrs.frozen
class User:
    """Somebody whom an identity provider knows, and who has been here. `id`: "<issuer>|<subject>"."""

    id: str
    issuer: str
    email: str
    created_at: float


@attrs.frozen
class Lease:
    """A router that says it is up."""

    peer: PeerId
    addresses: tuple[Address, ...]
    renewed_at: float
    expires_at: float
    connected_peers: int = 0
    directory_size: int = 0
    connections: int = 0
    connection_limit: int = 0
    labels: Mapping[str, str] = attrs.field(factory=dict[str, str])  # from the router's enrollment


@attrs.frozen
class Census:
    """How many of what the database holds, at one moment."""

    nodes: Mapping[tuple[str, str], int]  # by role and state: "admitted", "expired" or "banned"
    enrollments: Mapping[Status, int]
    tokens: Mapping[str, int]  # by state: "active", "revoked", "expired" or "exhausted"
    signing_keys: int  # that are honoured
    leases: tuple[Lease, ...]  # the live ones, of routers that are not banned
    retiring_until: float | None = None  # when the last of the retired ones stops being honoured
    users: int = 0
    banned: int = 0  # peers, and people
