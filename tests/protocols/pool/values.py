"""Strategies for what the two sides say."""

from hypothesis import strategies as st

from agentmesh.protocols.pool.close_wire import CloseRequest
from agentmesh.protocols.pool.values import (
    MAX_EPOCH,
    MAX_STREAM_ID,
    Ack,
    Code,
    ConnEpoch,
    Drain,
    DrainReason,
    Heartbeat,
    HeartbeatAck,
    Hello,
    Item,
    Message,
    Metadata,
    Open,
    OpenResult,
    Phase,
    Problem,
    Scaling,
    Stage,
    Stats,
)

IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._~:@+-]{0,30}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
EPOCHS = st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**53 + 1, MAX_EPOCH]) | st.integers(0, MAX_EPOCH)
COUNTS = st.integers(0, 2**31 - 1)
MILLISECONDS = st.integers(0, 86_400_000)
PROBLEMS = st.lists(st.builds(Problem, TEXTS, TEXTS, TEXTS), max_size=3).map(tuple)
CAPABILITIES = st.lists(TEXTS, max_size=4).map(tuple)

HELLOS = st.builds(
    Hello,
    agent_id=IDS,
    instance_id=st.just("") | IDS,
    connection_id=st.just("") | IDS,
    node_id=st.just("") | IDS,
    epoch=EPOCHS.map(ConnEpoch),
    revision=EPOCHS,
    reported_at=TEXTS,
    boot=st.just("") | IDS,
    items=st.lists(st.builds(Item, TEXTS, TEXTS, TEXTS), max_size=3).map(tuple),
    errors=PROBLEMS,
    capabilities=CAPABILITIES,
)
ACKS = st.builds(
    Ack,
    agent_id=IDS,
    epoch=EPOCHS.map(ConnEpoch),
    revision=EPOCHS,
    registered=st.booleans(),
    accepted=st.booleans(),
    idempotent=st.booleans(),
    connection_pool_supported=st.booleans(),
    max_connections_per_agent=COUNTS,
    server_node_id=st.just("") | IDS,
    retry_after_ms=MILLISECONDS,
    errors=PROBLEMS,
    capabilities=CAPABILITIES,
)
STATS = st.builds(
    Stats,
    active_streams=COUNTS,
    queued_bytes=st.integers(0, 2**53),
    queue_limit_bytes=st.integers(0, 2**53),
    queue_wait_ms=MILLISECONDS,
    open_failures=COUNTS,
    scaling=st.none() | st.builds(Scaling, IDS, IDS, COUNTS, COUNTS),
)
DRAINS = st.builds(
    Drain,
    phase=st.sampled_from(Phase),
    reason=st.sampled_from(DrainReason),
    deadline_ms=MILLISECONDS,
    retry_after_ms=MILLISECONDS,
    last_stream_id=st.integers(0, MAX_STREAM_ID),
)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    HELLOS,
    HELLOS.map(Metadata),
    ACKS,
    STATS,
    DRAINS,
    st.builds(Heartbeat, st.integers(0, MAX_EPOCH)),
    st.builds(HeartbeatAck, st.integers(0, MAX_EPOCH)),
)
OPENS = st.builds(
    Open,
    agent_id=IDS,
    protocol=st.sampled_from(["tcp", "http", "icmp-echo"]),
    target_host=st.sampled_from(["example.com", "10.0.0.1", "::1", "xn--bcher-kva.example"]),
    target_port=st.integers(0, 65535),
    stream_id=st.integers(1, MAX_STREAM_ID - 1),
    target_scheme=st.sampled_from(["", "https"]),
    host_header=TEXTS,
    tls_server_name=TEXTS,
    trace_id=st.just("") | IDS,
    target_connection_id=st.just("") | IDS,
    target_connection_epoch=EPOCHS.map(ConnEpoch),
    metadata=st.dictionaries(TEXTS, TEXTS, max_size=3),
)
RESULTS = st.builds(
    OpenResult,
    stage=st.sampled_from(Stage),
    code=st.sampled_from(Code),
    retryable=st.booleans(),
    retry_after_ms=MILLISECONDS,
)
CLOSES = st.builds(CloseRequest, IDS, IDS, st.integers(1, MAX_EPOCH).map(ConnEpoch))
