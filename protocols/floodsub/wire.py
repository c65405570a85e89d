"""Floodsub's RPCs to and from bytes (libp2p specification "pubsub").

What a peer sent either decodes to one of the values of `events` or raises RemoteProtocolError. Fields that are none of
floodsub's (gossipsub's control, a signed peer record) are not looked at.
"""

from collections.abc import Iterable, Iterator, Sequence

from agentmesh.errors import AddressError, LimitExceededError, RemoteProtocolError
from agentmesh.protocols.floodsub.events import Message, Rpc, Subscription
from agentmesh.types import PeerId, ProtocolId
from agentmesh.wire.codec import decode
from agentmesh.wire.framing import encode_frame
from agentmesh.wire.messages.libp2p import pubsub as pb

FLOODSUB_ID = ProtocolId("/floodsub/1.0.0")

MAX_SUBSCRIPTIONS_AT_ONCE = 256  # in one RPC of ours
MAX_TOPIC_BYTES = 256
MAX_TOPICS = 8  # of one message
MAX_SEQNO_BYTES = 8  # js-libp2p leaves leading zeros out

_PUBLISH = bytes([2 << 3 | 2])  # the field of RPC, and that a length follows


def encode_subscriptions(subscriptions: Iterable[Subscription] = ()) -> bytes:
    """An RPC that says what we want, or no longer want."""
    return bytes(
        pb.Rpc(subscriptions=[pb.RpcSubOpts(subscribe=one.wanted, topicid=one.topic) for one in subscriptions])
    )


def news_frames(news: Sequence[Subscription]) -> Iterator[bytes]:
    """Frames that say what has changed in what we want, each so short that it keeps to anybody's bound."""
    for start in range(0, len(news), MAX_SUBSCRIPTIONS_AT_ONCE):
        yield encode_frame(encode_subscriptions(news[start : start + MAX_SUBSCRIPTIONS_AT_ONCE]))


def encode_publish(message: Message) -> bytes:
    """An RPC that passes a message on, as it is. Encode it once for all peers."""
    tail = bytes(pb.Message(signature=message.signature, key=message.key or None))
    return _PUBLISH + encode_frame(message.signed + tail)


def encode_unsigned(author: PeerId, seqno: bytes, topics: tuple[str, ...], data: bytes) -> bytes:
    """What the author of a message signs."""
    return bytes(pb.Message(from_=author.multihash, data=data, seqno=seqno, topics=list(topics)))


def decode_rpc(data: bytes, max_message_bytes: int) -> Rpc:
    """Read what a peer tells us. No signature is verified.

    Args:
        data: the RPC.
        max_message_bytes: the longest message that is taken, all its fields together.
    Raises:
        RemoteProtocolError: `data` is no RPC; or a message in it has no author, number, topic or signature.
        LimitExceededError: a message, a topic, or a message's list of topics is too long; `limit` names the bound.
    """
    rpc = decode(pb.Rpc, data)
    return Rpc(
        subscriptions=tuple(_subscription_in(one) for one in rpc.subscriptions),
        messages=tuple(_message_in(one, max_message_bytes) for one in rpc.publish),
    )


def _subscription_in(options: pb.RpcSubOpts) -> Subscription:
    return Subscription(_topic_in(options.topicid), bool(options.subscribe))


def _message_in(message: pb.Message, max_message_bytes: int) -> Message:
    signature, key = message.signature or b"", message.key or b""
    if not signature:
        raise RemoteProtocolError("a message without a signature")
    if not 1 <= len(message.seqno or b"") <= MAX_SEQNO_BYTES:
        raise RemoteProtocolError("a message without a number, or with one of another length")
    if not message.topics:
        raise RemoteProtocolError("a message without a topic")
    if len(message.topics) > MAX_TOPICS:
        raise LimitExceededError(f"a message of more than {MAX_TOPICS} topics", limit="MAX_TOPICS")
    message.signature = message.key = None  # a copy would lose the fields that are news to us
    signed = bytes(message)
    if len(signed) + len(signature) + len(key) > max_message_bytes:
        raise LimitExceededError(f"a message of more than {max_message_bytes} bytes", limit="max_message_bytes")
    return Message(
        author=_author_in(message.from_),
        seqno=message.seqno or b"",
        topics=tuple(map(_topic_in, message.topics)),
        data=message.data or b"",
        signature=signature,
        key=key,
        signed=signed,
    )


def _author_in(multihash: bytes | None) -> PeerId:
    try:
        return PeerId.from_bytes(multihash or b"")
    except AddressError:
        raise RemoteProtocolError("a message without an author") from None


def _topic_in(topic: str | None) -> str:
    if not topic:
        raise RemoteProtocolError("a topic without a name")
    if len(topic.encode()) > MAX_TOPIC_BYTES:
        raise LimitExceededError(f"a topic of more than {MAX_TOPIC_BYTES} bytes", limit="MAX_TOPIC_BYTES")
    return topic
