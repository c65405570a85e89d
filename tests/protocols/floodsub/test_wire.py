"""What is said comes back, also as other implementations wrote it; what is none is the peer's fault."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import LimitExceededError, RemoteProtocolError
from agentmesh.protocols.floodsub.events import Message, Rpc, Subscription
from agentmesh.protocols.floodsub.wire import (
    MAX_FIELDS,
    MAX_MESSAGE_FIELDS,
    MAX_SEQNO_BYTES,
    MAX_TOPIC_BYTES,
    MAX_TOPICS,
    decode_rpc,
    encode_publish,
    encode_subscriptions,
    encode_unsigned,
)
from agentmesh.testing.strategies import damaged, foreign_peer_ids, peer_ids, pubsub_rpcs
from agentmesh.types import PeerId
from agentmesh.wire.framing import encode_frame
from agentmesh.wire.messages.libp2p import pubsub as pb
from tests.protocols.floodsub.vectors import VECTORS, Vector

ALICE = PeerId.from_ed25519(b"a" * 32)
LARGEST = 1000
topics = st.text(min_size=1, max_size=20)
subscriptions = st.lists(st.builds(Subscription, topics, st.booleans()), max_size=5)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    author = draw(peer_ids() | foreign_peer_ids())
    seqno = draw(st.binary(min_size=1, max_size=MAX_SEQNO_BYTES))
    about = tuple(draw(st.lists(topics, min_size=1, max_size=MAX_TOPICS)))
    data = draw(st.binary(max_size=100))
    signature, key = draw(st.binary(min_size=1, max_size=64)), draw(st.binary(max_size=36))
    signed = encode_unsigned(author, seqno, about, data)
    return Message(author, seqno, about, data, signature, key, signed)


def decode(data: bytes) -> Rpc:
    return decode_rpc(data, LARGEST)


@given(subscriptions)
def test_subscriptions_come_back(said: list[Subscription]) -> None:
    assert decode(encode_subscriptions(said)) == Rpc(tuple(said))


@given(messages())
def test_messages_come_back(message: Message) -> None:
    (got,) = decode(encode_publish(message)).messages
    assert (got, got.signed) == (message, message.signed)


def test_nothing_is_an_rpc_too() -> None:
    """What libp2p peers say first when they subscribe to nothing."""
    assert decode(b"") == Rpc() == decode(encode_subscriptions())


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_what_other_implementations_wrote_is_read(vector: Vector) -> None:
    rpc = decode_rpc(vector.data, 4096)
    said = {"hello": ("/mesh/events/v1", "jobs"), "hello_of_nobody": (), "unsubscribe": ("jobs",)}
    name = vector.name.partition(" ")[2]
    assert tuple(one.topic for one in rpc.subscriptions) == said.get(name, ())
    assert {one.wanted for one in rpc.subscriptions} <= {name != "unsubscribe"}
    assert bool(rpc.messages) == (name not in said)
    assert {message.author for message in rpc.messages} <= {vector.author}


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_what_is_passed_on_is_what_was_written(vector: Vector) -> None:
    for message in decode_rpc(vector.data, 4096).messages:
        assert encode_publish(message) in vector.data


def test_what_a_newer_author_signed_besides_is_kept() -> None:
    """Fields that are news to us are part of what is signed."""
    signed = encode_unsigned(ALICE, b"8", ("t",), b"d") + b"\x7a\x01x"
    (message,) = decode(encode_publish(Message(ALICE, b"8", ("t",), b"d", b"s", signed=signed))).messages
    assert message.signed == signed


def publish(**fields: object) -> bytes:
    message = pb.Message(from_=ALICE.multihash, data=b"d", seqno=b"12345678", topics=["t"], signature=b"s")
    for name, value in fields.items():
        setattr(message, name, value)
    return bytes(pb.Rpc(publish=[message]))


def publish_with(more: bytes) -> bytes:
    """A message with fields more, as they are on the wire."""
    fields = pb.Message(from_=ALICE.multihash, seqno=b"12345678", topics=["t"], signature=b"s")
    return b"\x12" + encode_frame(bytes(fields) + more)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        publish_with(b"\x22\x02\xff\xff"),  # a topic that is no text
        publish_with(b"\x08\x00"),  # an author that is a number
        publish(from_=None),
        publish(from_=b"nobody"),
        publish(seqno=None),
        publish(seqno=b""),
        publish(seqno=bytes(MAX_SEQNO_BYTES + 1)),
        publish(topics=[]),
        publish(topics=["t", ""]),
        publish(signature=None),
        publish(signature=b""),
        bytes(pb.Rpc(subscriptions=[pb.RpcSubOpts(subscribe=True)])),
        bytes(pb.Rpc(subscriptions=[pb.RpcSubOpts(subscribe=True, topicid="")])),
        b"\x12\x04\x22\x02\xff\xff",
    ],
)
def test_what_is_no_rpc_is_the_peers_fault(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(data)


def test_without_data_a_message_says_nothing_and_that_is_signed() -> None:
    (without,), (empty,) = (decode(publish(data=data)).messages for data in (None, b""))
    assert without.data == empty.data == b""
    assert without.signed != empty.signed


LONG = "ä" * (MAX_TOPIC_BYTES // 2 + 1)


@pytest.mark.parametrize(
    ("data", "limit"),
    [
        (publish(topics=["t"] * (MAX_TOPICS + 1)), "MAX_TOPICS"),
        (b"\x18\x00" * (MAX_FIELDS + 1), "MAX_FIELDS"),
        (publish_with(b"\x38\x00" * MAX_MESSAGE_FIELDS), "MAX_MESSAGE_FIELDS"),
        (publish(topics=[LONG]), "MAX_TOPIC_BYTES"),
        (bytes(pb.Rpc(subscriptions=[pb.RpcSubOpts(subscribe=True, topicid=LONG)])), "MAX_TOPIC_BYTES"),
        (publish(data=bytes(LARGEST)), "max_message_bytes"),
        (publish(signature=bytes(LARGEST)), "max_message_bytes"),
        (publish(key=bytes(LARGEST)), "max_message_bytes"),
    ],
)
def test_a_message_has_its_bounds(data: bytes, limit: str) -> None:
    with pytest.raises(LimitExceededError) as refused:
        decode(data)
    assert refused.value.limit == limit


@given(
    pubsub_rpcs().map(bytes)
    | damaged(pubsub_rpcs().map(bytes))
    | damaged(st.sampled_from(VECTORS).map(lambda v: v.data))
)
def test_any_bytes_are_an_rpc_or_the_peers_fault(data: bytes) -> None:
    try:
        rpc = decode(data)
    except RemoteProtocolError:
        return
    for message in rpc.messages:
        assert decode(encode_publish(message)).messages == (message,)
