"""What the two sides of a pooled connection say to each other, as values. `wire` makes bytes of them."""

import enum
from collections.abc import Mapping
from typing import NewType

import attrs

ConnEpoch = NewType("ConnEpoch", int)  # of one connection: the same number in hello, ack, lease, stream key and relay
NodeEpoch = NewType("NodeEpoch", int)  # of a router's process; never to be mixed with the former

MAX_EPOCH = 2**63 - 1
MAX_STREAM_ID = 2**32 - 1  # of an open; as the last accepted it says "not known yet"


class ErrorName(enum.StrEnum):
    """Why a router does not take a hello, or what it says of its agent."""

    UNAUTHORIZED = "UNAUTHORIZED"
    FORBIDDEN = "FORBIDDEN"
    UNSUPPORTED = "UNSUPPORTED"
    TIMEOUT = "TIMEOUT"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    PROTOCOL_ERROR = "PROTOCOL_ERROR"
    INVALID_REVISION = "invalid_revision"
    IDENTITY_MISMATCH = "identity_mismatch"
    STALE_EPOCH = "stale_epoch"
    STALE_REVISION = "stale_revision"
    REVISION_CONFLICT = "revision_conflict"
    INVALID_METADATA = "invalid_metadata"
    INVALID_PAYLOAD = "invalid_payload"
    COLLECTION_ERROR = "collection_error"


@attrs.frozen
class Item:
    """One thing an agent tells of itself."""

    name: str
    source: str
    value: str


@attrs.frozen
class Problem:
    """What went wrong with `name`: one of an agent's items, a field of its hello, or a limit of the router."""

    name: str
    code: str
    message: str = ""


@attrs.frozen
class Hello:
    """AgentMetadataPayload. An empty string is an absent field: a legacy agent has neither instance nor connection.

    Attributes:
        epoch: that the agent proposes for this connection; the ack has the one that counts.
        revision: of the metadata; it never goes down within an instance.
        reported_at: UTC, RFC 3339.
        boot: chosen at random when the process started, so that two with one instance ID are told apart.
    """

    agent_id: str
    instance_id: str = ""
    connection_id: str = ""
    node_id: str = ""
    epoch: ConnEpoch = ConnEpoch(0)
    revision: int = 0
    reported_at: str = ""
    boot: str = ""
    items: tuple[Item, ...] = ()
    errors: tuple[Problem, ...] = ()
    capabilities: tuple[str, ...] = ()


@attrs.frozen
class Ack:
    """AgentMetadataAckPayload.

    Attributes:
        epoch: of the connection, from now on.
        registered: whether the connection is in the pool; when not, the router ends it, and `errors` say why.
        accepted: whether the metadata was taken. That it was not never ends a connection.
        idempotent: it was known already.
        capabilities: those that both sides have.
        connection_pool_supported: whether a second connection would be taken. Absent means no.
        max_connections_per_agent: how many would; 0 when it was not said.
        server_node_id: the process at the other end.
        retry_after_ms: after a refusal, when to ask again; 0 leaves it to the agent.
    """

    agent_id: str
    epoch: ConnEpoch = ConnEpoch(0)
    revision: int = 0
    registered: bool = True
    accepted: bool = True
    idempotent: bool = False
    connection_pool_supported: bool = False
    max_connections_per_agent: int = 0
    server_node_id: str = ""
    retry_after_ms: int = 0
    errors: tuple[Problem, ...] = ()
    capabilities: tuple[str, ...] = ()


@attrs.frozen
class Metadata:
    """An agent's metadata, again, with a higher revision. Answered by an ack."""

    hello: Hello


@attrs.frozen
class Heartbeat:
    """Are you there? Either side asks; `seq` counts up from 1."""

    seq: int


@attrs.frozen
class HeartbeatAck:
    """Yes, and this is the `seq` that asked."""

    seq: int


@attrs.frozen
class Scaling:
    """The agent's last decision on its number of connections, for whoever looks at the router.

    Attributes:
        connections, capacity: how many it has now, and may have.
        scale_ups, scale_downs, rejections: decisions of this process so far, by what they were.
    """

    decision: str
    reason: str
    connections: int
    capacity: int
    scale_ups: int = 0
    scale_downs: int = 0
    rejections: int = 0


@attrs.frozen
class Stats:
    """How a connection is, as its agent sees it."""

    active_streams: int = 0
    queued_bytes: int = 0
    queue_limit_bytes: int = 0
    queue_wait_ms: int = 0  # 95th percentile
    open_failures: int = 0
    scaling: Scaling | None = None


class DrainReason(enum.StrEnum):
    """Why a connection is to end."""

    SCALE_DOWN = "scale_down"
    SERVER_SHUTDOWN = "server_shutdown"
    AGENT_SHUTDOWN = "agent_shutdown"
    ADMIN_CLOSE = "admin_close"
    REPLACED = "replaced"
    PROTOCOL_ERROR = "protocol_error"
    UNSPECIFIED = "unspecified"  # or one that a newer peer may have


class Phase(enum.IntEnum):
    """How far a drain is."""

    ANNOUNCED = 1  # open nothing more
    SETTLED = 2  # this is the last that counts


@attrs.frozen
class Drain:
    """The connection is to end.

    Attributes:
        deadline_ms: milliseconds that open streams have.
        retry_after_ms: when a new connection would be welcome; 0: at once.
        last_stream_id: the last open that is served; MAX_STREAM_ID while it is not known.
    """

    phase: Phase
    reason: DrainReason
    deadline_ms: int = 0
    retry_after_ms: int = 0
    last_stream_id: int = MAX_STREAM_ID


class Stage(enum.StrEnum):
    """How far an open got."""

    AUTHORIZATION = "authorization"
    SELECTION = "selection"
    RELAY = "relay"
    QUEUE = "queue"
    DNS = "dns"
    CONNECT = "connect"
    POLICY = "policy"
    PROTOCOL = "protocol"


class Code(enum.StrEnum):
    """What became of an open."""

    OK = "ok"
    FORBIDDEN = "forbidden"
    AGENT_OFFLINE = "agent_offline"
    QUEUE_FULL = "queue_full"
    TIMEOUT = "timeout"
    NETWORK_UNREACHABLE = "network_unreachable"
    HOST_UNREACHABLE = "host_unreachable"
    CONNECTION_REFUSED = "connection_refused"
    UNSUPPORTED_CAPABILITY = "unsupported_capability"
    INTERNAL_ERROR = "internal_error"


@attrs.frozen
class Open:
    """OPEN_STREAM: what the agent is to connect to.

    Attributes:
        stream_id: the open's number on its connection, from 1 upwards, never used twice; 0 before it has one.
        target_scheme, host_header, tls_server_name: of an HTTP target; "" when they do not matter.
        trace_id: under which the choice of this connection was recorded.
        target_connection_id, target_connection_epoch: of an open that one router asks of another: the life of the
            connection that it is for, and no other.
    """

    agent_id: str
    protocol: str
    target_host: str
    target_port: int
    stream_id: int = 0
    target_scheme: str = ""
    host_header: str = ""
    tls_server_name: str = ""
    trace_id: str = ""
    target_connection_id: str = ""
    target_connection_epoch: ConnEpoch = ConnEpoch(0)
    metadata: Mapping[str, str] = attrs.field(factory=dict[str, str], hash=False)


@attrs.frozen
class OpenResult:
    """OPEN_RESULT. An open is accepted when its code is OK, and only then.

    Attributes:
        retryable: whether the same open may succeed on another connection, or later.
        retry_after_ms: when; 0: at once.
    """

    stage: Stage
    code: Code
    retryable: bool = False
    retry_after_ms: int = 0

    @property
    def accepted(self) -> bool:
        return self.code is Code.OK


ACCEPTED = OpenResult(Stage.CONNECT, Code.OK)


class Closing(enum.StrEnum):
    """What became of an operator's wish to close a connection."""

    BEGUN = "closing"  # it drains
    STALE = "stale"  # it lives on under another epoch
    GONE = "gone"  # it is not here


FromAgent = Hello | Metadata | Stats | Heartbeat | HeartbeatAck | Drain
FromRouter = Ack | Heartbeat | HeartbeatAck | Drain
Message = Hello | Metadata | Stats | Ack | Heartbeat | HeartbeatAck | Drain

CAPABILITIES = (
    "stream_open_result.v1",
    "stream_flow_control.v1",
    "stream_fair_writer.v1",
)
EVERY_PROTOCOL = frozenset({"tcp", "http", "https"})  # what an agent serves without saying so
NEEDED_CAPABILITY: Mapping[str, str] = {"icmp-echo": "stream_icmp_echo.v1"}


def serves(capabilities: frozenset[str], protocol: str) -> bool:
    """Whether a connection with these capabilities serves opens of a protocol. Protocols are not capabilities."""
    return protocol in EVERY_PROTOCOL or NEEDED_CAPABILITY.get(protocol) in capabilities
