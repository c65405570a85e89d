import contextlib
import json
from collections.abc import Callable
from functools import partial

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import LimitExceededError, LocalProtocolError, RemoteProtocolError
from agentmesh.protocols.pool import Ack, ConnEpoch, Hello, Item, Open, OpenResult
from agentmesh.protocols.pool.fields import encode_object
from agentmesh.protocols.pool.open_wire import (
    DIAL_ID,
    MAX_OPEN_BYTES,
    MAX_RESULT_BYTES,
    OPEN_ID,
    RELAY_ID,
    decode_open,
    decode_result,
    encode_open,
    encode_result,
)
from agentmesh.protocols.pool.values import MAX_EPOCH, MAX_STREAM_ID, Code, Drain, DrainReason, Message, Phase, Stage
from agentmesh.protocols.pool.wire import MAX_MESSAGE_BYTES, Kind, decode_message, encode_message
from agentmesh.testing.strategies import damaged
from agentmesh.types import ProtocolId
from tests.protocols.pool.values import ACKS, EPOCHS, HELLOS, MESSAGES, OPENS, RESULTS

HELLO = Hello("agent-devbox", "agent-node-a", "conn-01h8h2q9v4k7w3r5t", "legacy-node-id", ConnEpoch(12), 3)


@given(MESSAGES)
def test_what_is_sent_comes_back(message: Message) -> None:
    assert decode_message(encode_message(message), Kind.HELLO) == message


@given(OPENS, RESULTS)
def test_opens_and_results_come_back(request: Open, result: OpenResult) -> None:
    assert decode_open(encode_open(request)) == request
    assert len(encode_result(result)) <= MAX_RESULT_BYTES
    assert decode_result(encode_result(result)) == result


def test_the_hello_has_the_fields_of_an_agents_metadata() -> None:
    said = json.loads(encode_message(HELLO))
    assert said == {
        "type": "hello",
        "agent_id": "agent-devbox",
        "instance_id": "agent-node-a",
        "connection_id": "conn-01h8h2q9v4k7w3r5t",
        "node_id": "legacy-node-id",
        "epoch": 12,
        "epoch_decimal": "12",
        "revision": 3,
    }


def test_the_ack_says_whether_there_is_a_pool() -> None:
    said = json.loads(encode_message(Ack("a", connection_pool_supported=True, max_connections_per_agent=8)))
    assert (said["connection_pool_supported"], said["max_connections_per_agent"]) == (True, 8)


def test_a_legacy_hello_has_neither_type_nor_instance_nor_connection() -> None:
    data = b'{"agent_id": "agent-devbox", "node_id": "legacy-node-id", "epoch": 12, "revision": 3, "items": null}'
    assert decode_message(data, Kind.HELLO) == Hello("agent-devbox", "", "", "legacy-node-id", ConnEpoch(12), 3)


def test_a_legacy_ack_supports_no_pool() -> None:
    ack = decode_message(b'{"agent_id": "a", "epoch": 4, "revision": 1, "accepted": false}', Kind.ACK)
    assert ack == Ack("a", ConnEpoch(4), 1, registered=True, accepted=False)
    assert isinstance(ack, Ack)
    assert not ack.connection_pool_supported


LEGACY_HELLO = ("agent_id", "node_id", "epoch", "revision")  # all that an older decoder reads
LEGACY_ACK = ("agent_id", "epoch", "revision", "accepted", "idempotent")


@given(HELLOS, ACKS)
def test_an_older_decoder_agrees_on_what_it_knows(hello: Hello, ack: Ack) -> None:
    """It reads plain JSON, and takes what is absent for its zero."""
    said, zero = json.loads(encode_message(hello)), {"epoch": 0, "revision": 0}
    assert [said.get(name, zero.get(name, "")) for name in LEGACY_HELLO] == [
        getattr(hello, name) for name in LEGACY_HELLO
    ]
    said = json.loads(encode_message(ack))
    assert [said[name] for name in LEGACY_ACK] == [getattr(ack, name) for name in LEGACY_ACK]


@given(MESSAGES)
def test_nothing_is_ever_null(message: Message) -> None:
    assert b":null" not in encode_message(message)
    assert b":[]" not in encode_message(message)


@given(HELLOS, st.dictionaries(st.text(max_size=5).map("x-".__add__), st.none() | st.integers() | st.text(max_size=5)))
def test_what_a_newer_peer_adds_is_ignored(hello: Hello, more: dict[str, object]) -> None:
    said = json.loads(encode_message(hello)) | more
    assert decode_message(json.dumps(said).encode(), Kind.HELLO) == hello


def test_a_message_of_an_unknown_type_is_none() -> None:
    assert decode_message(b'{"type": "trace_start"}', Kind.HELLO) is None


@given(EPOCHS)
def test_any_epoch_survives_a_reader_of_doubles(epoch: int) -> None:
    said = json.loads(encode_message(Hello("a", epoch=ConnEpoch(epoch))))
    rounded = {**said, "epoch": float(said["epoch"])}  # as JavaScript has it, and sends it on
    hello = decode_message(json.dumps(rounded).encode(), Kind.HELLO)
    assert isinstance(hello, Hello)
    assert hello.epoch == epoch


def test_an_epoch_may_be_a_string() -> None:
    hello = decode_message(b'{"agent_id": "a", "epoch": "9223372036854775807"}', Kind.HELLO)
    assert isinstance(hello, Hello)
    assert hello.epoch == MAX_EPOCH


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b"null",
        b"\xff",
        b"[" * 20_000,
        b'{"epoch": 1}',
        b'{"agent_id": ""}',
        b'{"agent_id": 7}',
        b'{"agent_id": "a b"}',
        b'{"agent_id": "../a"}',
        b'{"agent_id": "a\\n"}',
        b'{"agent_id": "' + b"a" * 129 + b'"}',
        b'{"agent_id": "a", "epoch": -1}',
        b'{"agent_id": "a", "epoch": 9223372036854775808}',
        b'{"agent_id": "a", "epoch": 1.0}',
        b'{"agent_id": "a", "epoch": true}',
        b'{"agent_id": "a", "epoch": NaN}',
        b'{"agent_id": "a", "epoch": "007"}',
        b'{"agent_id": "a", "epoch_decimal": "1e3"}',
        b'{"agent_id": "a", "items": {}}',
        b'{"agent_id": "a", "items": [1]}',
        b'{"agent_id": "a", "reported_at": "\\ud800"}',
        b'{"agent_id": "a", "capabilities": ["' + b'","' * 64 + b'"]}',
        b'{"agent_id": "a", "type": "ack", "registered": 1}',
        b'{"type": "goaway", "phase": 3}',
        b'{"type": "stats", "scaling": []}',
        b'{"agent_id": "a", "boot": "' + b"b" * MAX_MESSAGE_BYTES + b'"}',
    ],
)
def test_what_is_no_message_is_the_peers_fault(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_message(data, Kind.HELLO)


def test_a_plain_goaway_is_an_announcement() -> None:
    drain = decode_message(b'{"type": "goaway", "reason": "tired"}', Kind.HELLO)
    assert drain == Drain(Phase.ANNOUNCED, DrainReason.UNSPECIFIED)


def test_too_much_of_our_own_is_our_fault() -> None:
    items = tuple(Item("n", "s", "v" * 1024) for _ in range(64))
    with pytest.raises(LocalProtocolError):
        encode_message(Hello("a", items=items))


OPEN: dict[str, object] = {"agent_id": "a", "protocol": "tcp", "target_host": "h", "target_port": 22, "stream_id": 1}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"stream_id": 0}, RemoteProtocolError),
        ({"target_host": ""}, RemoteProtocolError),
        ({"target_host": "a b"}, RemoteProtocolError),
        ({"target_host": "a/b"}, RemoteProtocolError),  # a policy reads it as a part of a path
        ({"target_host": "b\u00fccher"}, RemoteProtocolError),
        ({"target_port": 65536}, RemoteProtocolError),
        ({"protocol": None}, RemoteProtocolError),
        ({"metadata": {"a": 1}}, RemoteProtocolError),
        ({"metadata": {str(i): "" for i in range(33)}}, LimitExceededError),
    ],
)
def test_what_is_no_open(change: dict[str, object], error: type[RemoteProtocolError]) -> None:
    assert decode_open(json.dumps(OPEN).encode()).target_port == 22
    with pytest.raises(error):
        decode_open(json.dumps(OPEN | change).encode())


@pytest.mark.parametrize(
    ("protocol", "lacks", "refused"),
    [
        (OPEN_ID, "stream_id", True),
        (OPEN_ID, "target_connection_id", False),
        (RELAY_ID, "stream_id", False),
        (RELAY_ID, "target_connection_id", True),
        (DIAL_ID, "stream_id", False),
        (DIAL_ID, "target_connection_id", False),
    ],
)
def test_each_protocol_needs_what_its_receiver_does(protocol: ProtocolId, lacks: str, refused: bool) -> None:
    said = OPEN | {"target_connection_id": "c1"}
    assert decode_open(json.dumps(said).encode(), protocol).target_connection_id == "c1"
    del said[lacks]
    if refused:
        with pytest.raises(RemoteProtocolError):
            decode_open(json.dumps(said).encode(), protocol)
    else:
        decode_open(json.dumps(said).encode(), protocol)


@given(EPOCHS)
def test_the_epoch_of_a_relayed_open_survives_a_reader_of_doubles(epoch: int) -> None:
    request = Open("a", "tcp", "h", 22, target_connection_id="c1", target_connection_epoch=ConnEpoch(epoch))
    said = json.loads(encode_open(request))
    rounded = {**said, "target_connection_epoch": float(said.get("target_connection_epoch", 0))} if epoch else said
    assert decode_open(json.dumps(rounded).encode(), RELAY_ID) == request


@pytest.mark.parametrize(
    "change",
    [
        {"target_connection_epoch": -1},
        {"target_connection_epoch": 2**63},
        {"target_connection_epoch": 1.5},
        {"target_connection_epoch_decimal": "01"},
        {"target_connection_epoch_decimal": str(2**63)},
        {"target_connection_id": "a/b"},
        {"target_connection_id": 7},
    ],
)
def test_what_names_no_life_of_a_connection(change: dict[str, object]) -> None:
    said = OPEN | {"target_connection_id": "c1"} | change
    with pytest.raises(RemoteProtocolError):
        decode_open(json.dumps(said).encode(), RELAY_ID)


@given(OPENS, st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3))
def test_what_a_client_may_ask_can_be_passed_on(request: Open, text: str) -> None:
    """However it was spelt, and whatever a router adds."""
    size = 30_000 // 32 // len(text.encode())
    full = attrs.evolve(request, metadata={str(n): text * min(size, 1024 // len(text)) for n in range(32)})
    said = json.dumps(json.loads(encode_object(attrs.asdict(full), 1 << 20)), ensure_ascii=False).encode()
    try:
        dialled = decode_open(said, DIAL_ID)
    except LimitExceededError:
        return
    for name in ("x" * 128, "y"):
        added = attrs.evolve(dialled, agent_id=name, trace_id=name, target_connection_id=name)
        added = attrs.evolve(added, stream_id=MAX_STREAM_ID - 1, target_connection_epoch=ConnEpoch(MAX_EPOCH))
        for protocol in (OPEN_ID, RELAY_ID):
            assert decode_open(encode_open(added), protocol) == added


def test_an_open_is_bounded_on_both_sides() -> None:
    with pytest.raises(LimitExceededError):
        decode_open(json.dumps(OPEN).encode() + b" " * MAX_OPEN_BYTES)
    with pytest.raises(LocalProtocolError):
        encode_open(Open("a", "tcp", "h", 22, 1, metadata={str(n): "v" * 1024 for n in range(32)}))


@pytest.mark.parametrize("data", [b'{"accepted": true, "code": "timeout"}', b'{"code": "ok"}', b"{}x"])
def test_an_open_is_accepted_when_its_code_says_so_and_only_then(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_result(data)


def test_a_code_of_a_newer_agent_is_an_error_of_its() -> None:
    result = decode_result(b'{"accepted": false, "stage": "teleport", "code": "beamed", "retryable": true}')
    assert result == OpenResult(Stage.PROTOCOL, Code.INTERNAL_ERROR, retryable=True)


@given(damaged(MESSAGES.map(encode_message)) | damaged(OPENS.map(encode_open)) | damaged(RESULTS.map(encode_result)))
def test_damaged_bytes_are_a_message_or_the_peers_fault(data: bytes) -> None:
    opens = [partial(decode_open, protocol=protocol) for protocol in (OPEN_ID, DIAL_ID, RELAY_ID)]
    decoders: list[Callable[[bytes], object]] = [*opens, decode_result, partial(decode_message, untyped=Kind.ACK)]
    for decode in decoders:
        with contextlib.suppress(RemoteProtocolError):
            decode(data)
