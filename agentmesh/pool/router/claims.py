"""Who a hello says that a connection is, checked against who its session proved to be."""

import enum

import attrs

from agentmesh.protocols.pool import ConnEpoch, ErrorName, Hello, Problem

LEGACY_PREFIX = "legacy-"


class Reason(enum.StrEnum):
    """Why a connection is not taken."""

    IDENTITY_MISMATCH = "identity_mismatch"
    STALE_EPOCH = "stale_epoch"
    MAX_CONNECTIONS_PER_AGENT = "max_connections_per_agent"
    MAX_CONNECTIONS_PER_TOKEN = "max_connections_per_token"
    MAX_CONNECTIONS_PER_NODE = "max_connections_per_node"
    REGISTRATION_RATE = "registration_rate"
    REGISTERING = "registering"  # the same connection, a moment ago
    HELD = "held"  # by another router, still
    REGISTRY_UNAVAILABLE = "registry_unavailable"
    SHUTTING_DOWN = "shutting_down"


_CODES = {
    Reason.IDENTITY_MISMATCH: ErrorName.FORBIDDEN,
    Reason.STALE_EPOCH: ErrorName.STALE_EPOCH,
}


@attrs.frozen
class Refusal:
    """A connection is not taken.

    Attributes:
        retry_after: seconds until it may be; 0 when nothing is known.
    """

    reason: Reason
    retry_after: float = 0.0

    @property
    def problem(self) -> Problem:
        """As an ack says it: which limit, and that it is one."""
        return Problem(self.reason, _CODES.get(self.reason, ErrorName.RESOURCE_EXHAUSTED))


@attrs.frozen
class ConnectionKey:
    """One life of one connection. With a stream's number it names the stream."""

    agent_id: str
    connection_id: str
    epoch: ConnEpoch


@attrs.frozen(kw_only=True)
class Claim:
    """What a connection says it is.

    Attributes:
        epoch: that it proposes.
        token_id: of the credential that its session was made with; not the credential.
        boot: of its process; "" from a legacy agent.
    """

    agent_id: str
    instance_id: str
    connection_id: str
    epoch: ConnEpoch
    token_id: str
    boot: str = ""
    capabilities: frozenset[str] = frozenset()

    @property
    def key(self) -> ConnectionKey:
        return ConnectionKey(self.agent_id, self.connection_id, self.epoch)


def claim_of(hello: Hello, *, bound_to: str | None, token_id: str, peer: str) -> Claim | Refusal:
    """Read a hello. Legacy agents name no instance and no connection; both are made up, the same every time.

    Args:
        bound_to: the agent that the credential is for; None when it is for none.
        token_id: names the credential.
        peer: who the session proved to be at the other end.
    """
    if hello.agent_id != bound_to:
        return Refusal(Reason.IDENTITY_MISMATCH)
    instance_id = hello.instance_id or hello.node_id or peer
    return Claim(
        agent_id=hello.agent_id,
        instance_id=instance_id,
        connection_id=hello.connection_id or (LEGACY_PREFIX + (hello.node_id or instance_id))[:128],
        epoch=hello.epoch,
        token_id=token_id,
        boot=hello.boot,
        capabilities=frozenset(hello.capabilities),
    )
