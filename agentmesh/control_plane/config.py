"""What an operator sets."""

from collections.abc import Callable
from typing import Any

import attrs

from agentmesh.control_plane.bind_address import parse_bind_address
from agentmesh.control_plane.dsn import parse_dsn
from agentmesh.control_plane.oidc.trust import Trust
from agentmesh.control_plane.policy.model import Policy

HOUR = 3600.0
MAX_HONOURED_KEYS = 100  # members read them all
MAX_REPLICATION = 20  # routers that one record is sent to


def _bind_address(_: object, __: "attrs.Attribute[Any]", value: str | None) -> None:
    if value is not None:
        parse_bind_address(value)


def _db_dsn(_: object, __: "attrs.Attribute[str]", value: str) -> None:
    parse_dsn(value)


def _without_password(dsn: str) -> str:
    return str(parse_dsn(dsn))


def _positive(_: object, attribute: "attrs.Attribute[Any]", value: float) -> None:
    if not value > 0:
        raise ValueError(f"{attribute.name} is above 0, not {value}")


def _not_negative(_: object, attribute: "attrs.Attribute[Any]", value: float) -> None:
    if not value >= 0:
        raise ValueError(f"{attribute.name} is not negative, and not {value}")


def _replication(_: object, attribute: "attrs.Attribute[Any]", value: int) -> None:
    if not 1 <= value <= MAX_REPLICATION:
        raise ValueError(f"{attribute.name} is from 1 to {MAX_REPLICATION}, not {value}")


positive: Callable[[object, "attrs.Attribute[Any]", float], None] = _positive


@attrs.frozen(kw_only=True)
class Config:
    """Settings of one control plane.

    Raises:
        ValueError: a value is out of range.
    """

    bind_address: str = attrs.field(default="0.0.0.0:8080", validator=_bind_address)  # port 0: any free one
    metrics_address: str | None = attrs.field(default=None, validator=_bind_address)  # another, for metrics alone
    db_dsn: str = attrs.field(default="control-plane.db", validator=_db_dsn, repr=_without_password)  # see parse_dsn
    admin_token: str | None = attrs.field(default=None, repr=False)  # None: nobody is an admin
    policy: Policy | None = None  # put in force when there is none yet; without one no label is attested
    trust: Trust = Trust()  # the identity providers whose tokens are believed
    oidc_client_id: str = ""  # of the people's provider, for those who log in there
    oidc_session_ttl: float = attrs.field(default=2160 * HOUR, validator=positive)  # seconds that a login is renewed on
    workload_session_ttl: float = attrs.field(default=48 * HOUR, validator=positive)  # … and a program's token
    insecure_skip_tls_verify: bool = False  # a provider's certificate is not looked at, and HTTP will do
    auto_approve_enrollment: bool = False  # a valid bootstrap token is enough; else an admin approves
    biscuit_ttl: float = attrs.field(default=24 * HOUR, validator=positive)  # seconds that a credential is valid
    lease_duration: float = attrs.field(default=HOUR / 4, validator=positive)  # seconds that a router's lease lasts
    key_rotation_interval: float = attrs.field(default=24 * HOUR, validator=_not_negative)  # seconds; 0: never
    key_grace_period: float = attrs.field(default=HOUR, validator=positive)  # seconds that a retired key is honoured
    node_retention: float = attrs.field(default=720 * HOUR, validator=positive)  # seconds that expired members are kept
    mesh_reconnect_interval: float = attrs.field(default=30.0, validator=positive)  # seconds to redial routers
    dht_replication: int = attrs.field(default=3, validator=_replication)  # routers that hold each directory record
    poll_interval: float = attrs.field(default=30.0, validator=positive)  # seconds that pending members are to wait
    enroll_rate: float = attrs.field(default=10.0, validator=positive)  # enrollment requests per second, of all callers
    enroll_burst: int = attrs.field(default=20, validator=positive)  # … and that many at once after a quiet time

    @property
    def login(self) -> tuple[str, str, str]:
        """How people register: the issuer of their tokens, a client there, the audience; each "" if they cannot."""
        issuer = next((issuer.url for issuer in self.trust.issuers if not issuer.workload), "")
        return issuer, self.oidc_client_id, self.trust.audiences[0] if self.trust.issuers else ""

    def __attrs_post_init__(self) -> None:
        if self.key_grace_period > MAX_HONOURED_KEYS * (self.key_rotation_interval or self.key_grace_period):
            raise ValueError(f"key_grace_period is not above {MAX_HONOURED_KEYS} times key_rotation_interval")
