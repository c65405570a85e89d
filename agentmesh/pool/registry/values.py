"""What the registry keeps and what it answers. Frozen, checked when they are made, the same for every store."""

import re
from collections.abc import Callable
from typing import Any

import attrs

from agentmesh.pool.registry.errors import IdentifierError
from agentmesh.protocols.pool import MAX_EPOCH, ConnEpoch

MAX_ID_CHARS = 128
MAX_CAPABILITIES = 64  # of one connection
MAX_CAPABILITY_CHARS = 128
MAX_STREAMS = 2**31 - 1
MAX_HEALTH = 100  # all is well; 0: do not choose it

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~:@+-]*")


def is_identifier(value: str) -> bool:
    """Whether it may be the ID of anything here: nothing else is ever listed."""
    return len(value) <= MAX_ID_CHARS and _IDENTIFIER.fullmatch(value) is not None


def _check_identifier(_: object, attribute: "attrs.Attribute[str]", value: str) -> None:
    if not is_identifier(value):
        raise IdentifierError(f"{attribute.name} is no identifier of at most {MAX_ID_CHARS} characters")


def _check_capabilities(_: object, __: object, value: tuple[str, ...]) -> None:
    if len(value) > MAX_CAPABILITIES or any(not 0 < len(name) <= MAX_CAPABILITY_CHARS for name in value):
        raise IdentifierError(f"more than {MAX_CAPABILITIES} capabilities, or one that is empty or too long")


def _between(low: int, high: int) -> Callable[[object, "attrs.Attribute[Any]", int], None]:
    def check(_: object, attribute: "attrs.Attribute[Any]", value: int) -> None:
        if not low <= value <= high:
            raise IdentifierError(f"{attribute.name} is not between {low} and {high}")

    return check


def check_ttl(ttl: float, max_ttl: float) -> None:
    """Raises IdentifierError unless a lease may be of `ttl` seconds."""
    if not 0 < ttl <= max_ttl:
        raise IdentifierError(f"a lease lasts up to {max_ttl} seconds, not {ttl}")


def check_retention(retention: float) -> None:
    """Raises IdentifierError for a negative one: what lives is not forgotten."""
    if not retention >= 0:
        raise IdentifierError(f"nothing is retained for {retention} seconds")


def fold(agent_id: str) -> str:
    """What all spellings of an agent's ID have in common; IDs are ASCII."""
    return agent_id.lower()


@attrs.frozen
class Fence:
    """Who may change a lease: the connection in the life that `epoch` numbers. A later life makes it void."""

    agent_id: str = attrs.field(validator=_check_identifier)
    connection_id: str = attrs.field(validator=_check_identifier)
    epoch: ConnEpoch = attrs.field(validator=_between(0, MAX_EPOCH))


@attrs.frozen(kw_only=True)
class NewConnection:
    """A connection that is to be listed.

    Attributes:
        instance_id: the agent's process.
        server_node_id: the router that serves it.
        capabilities: what the agent can do over it.
    """

    agent_id: str = attrs.field(validator=_check_identifier)
    connection_id: str = attrs.field(validator=_check_identifier)
    instance_id: str = attrs.field(validator=_check_identifier)
    server_node_id: str = attrs.field(validator=_check_identifier)
    capabilities: tuple[str, ...] = attrs.field(default=(), validator=_check_capabilities)

    def fenced(self, epoch: int) -> Fence:
        return Fence(self.agent_id, self.connection_id, ConnEpoch(epoch))


@attrs.frozen
class Stats:
    """How busy and how well a connection is.

    Attributes:
        health_score: from 0, not to be chosen, to MAX_HEALTH.
    """

    active_streams: int = attrs.field(default=0, validator=_between(0, MAX_STREAMS))
    health_score: int = attrs.field(default=MAX_HEALTH, validator=_between(0, MAX_HEALTH))


@attrs.frozen
class StatsReport:
    """What the owner of a lease says of its connection."""

    fence: Fence
    stats: Stats


@attrs.frozen(kw_only=True)
class ConnectionLease:
    """A connection that is listed.

    Attributes:
        expires_at: seconds since 1970 by the store's clock. (etcd tells none: there it is the clock of the router that
            renewed last.)
        stats_age: seconds since its router last said how busy it is.
    """

    agent_id: str
    instance_id: str
    connection_id: str
    server_node_id: str
    connection_epoch: ConnEpoch
    capabilities: tuple[str, ...]
    active_streams: int
    health_score: int
    expires_at: float
    stats_age: float

    @property
    def fence(self) -> Fence:
        return Fence(self.agent_id, self.connection_id, self.connection_epoch)


@attrs.frozen
class Registered:
    """The connection is listed, under this fence.

    Attributes:
        replaced: the epoch of the life that it put an end to; None when the connection was not listed.
    """

    fence: Fence
    expires_at: float
    replaced: ConnEpoch | None = None


@attrs.frozen
class Held:
    """The connection is listed already, and no epoch was proposed that is above. Try again when it has run out."""

    server_node_id: str
    epoch: ConnEpoch
    expires_at: float


@attrs.frozen
class Superseded:
    """A later life of the connection has begun, or this very epoch was used. Nothing changed; a retry is no use.

    Attributes:
        epoch: the latest.
    """

    epoch: ConnEpoch


@attrs.frozen
class Full:
    """The agent has as many connections as it may. Nothing changed; it may be tried again when one has ended.

    Attributes:
        limit: the setting's name.
        maximum: its value.
    """

    limit: str
    maximum: int


@attrs.frozen
class Renewed:
    """The lease lasts until then."""

    expires_at: float


@attrs.frozen
class Lapsed:
    """The lease has run out, was released, or never was; nobody else has begun a later life. Register again."""


@attrs.frozen
class Released:
    """The connection is not listed any more."""


@attrs.frozen
class Updated:
    """What was said of the connection is kept."""


RegisterOutcome = Registered | Held | Superseded | Full
RenewOutcome = Renewed | Lapsed | Superseded
ReleaseOutcome = Released | Lapsed | Superseded
StatsOutcome = Updated | Lapsed | Superseded
