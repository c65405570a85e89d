"""Floodsub's RPCs to and from bytes (libp2p specification "pubsub").

What a peer sent either decodes to one of the values of `events` or raises RemoteProtocolError. Fields that are none of
floodsub's (gossipsub's control, a signed peer record) are not looked at.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence

from agentmesh.errors import AddressError, LimitExceededError, RemoteProtocolError
from agentmesh.protocols.floodsub.events import Message, Rpc, Subscription
from agentmesh.types import PeerId, ProtocolId
from agentmesh.wire.codec import LENGTH, decode, spans
from agentmesh.wire.framing import encode_frame
from agentmesh.wire.messages.libp2p import pubsub as pb

FLOODSUB_ID = ProtocolId("/floodsub/1.0.0")

MAX_SUBSCRIPTIONS_AT_ONCE = 256  # in one RPC of ours
MAX_TOPIC_BYTES = 256
MAX_TOPICS = 8  # of one message
MAX_SEQNO_BYTES = 8  # js-libp2p leaves leading zeros out

MAX_FIELDS = 16_384  # of one RPC
MAX_MESSAGE_FIELDS = 64  # of one message, what a newer author adds among them
KNOWN_NAMES = 1024  # authors and topics that need not be read again

_PUBLISH = 2  # the field of RPC
_FROM, _DATA, _SEQNO, _TOPIC, _SIGNATURE, _KEY = range(1, 7)  # those of Message
_PUBLISH_TAG = bytes([_PUBLISH << 3 | LENGTH])


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
    return _PUBLISH_TAG + encode_frame(message.signed + tail)


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
        LimitExceededError: a message, a topic, or a message's list of topics is too long; `limit` names the bound. Or
            there are too many fields.
    """
    subscriptions: list[Subscription] = []
    messages: list[Message] = []
    for count, (number, wire_type, _, start, end) in enumerate(spans(data), 1):
        if count > MAX_FIELDS:
            raise LimitExceededError(f"an RPC of more than {MAX_FIELDS} fields", limit="MAX_FIELDS")
        if number > _PUBLISH:
            continue
        if wire_type != LENGTH:
            raise RemoteProtocolError(f"field {number} of an RPC came with wire type {wire_type}")
        if number == _PUBLISH:
            messages.append(_message_in(data[start:end], max_message_bytes))
        else:
            subscriptions.append(_subscription_in(data[start:end]))
    return Rpc(tuple(subscriptions), tuple(messages))


def _subscription_in(data: bytes) -> Subscription:
    options = decode(pb.RpcSubOpts, data)
    return Subscription(_topic_in((options.topicid or "").encode()), bool(options.subscribe))


def _message_in(data: bytes, max_message_bytes: int) -> Message:
    """A message by hand, and not by its generated class: every event passes here at every member, and this way it costs
    a tenth. What is signed are its fields without signature and key, byte by byte as the author wrote them.
    """
    found: dict[int, bytes] = {}
    signed: list[bytes] = []
    topics: list[bytes] = []
    for count, (number, wire_type, begin, start, end) in enumerate(spans(data), 1):
        if count > MAX_MESSAGE_FIELDS:
            raise LimitExceededError(f"a message of more than {MAX_MESSAGE_FIELDS} fields", limit="MAX_MESSAGE_FIELDS")
        if number <= _KEY and wire_type != LENGTH:
            raise RemoteProtocolError(f"field {number} of a message came with wire type {wire_type}")
        if number == _TOPIC:
            topics.append(data[start:end])
        else:
            found[number] = data[start:end]
        if number not in (_SIGNATURE, _KEY):
            signed.append(data[begin:end])
    return _checked(found, topics, b"".join(signed), max_message_bytes)


def _checked(found: dict[int, bytes], topics: list[bytes], signed: bytes, max_message_bytes: int) -> Message:
    signature, key, seqno = (found.get(number, b"") for number in (_SIGNATURE, _KEY, _SEQNO))
    if not signature:
        raise RemoteProtocolError("a message without a signature")
    if not 1 <= len(seqno) <= MAX_SEQNO_BYTES:
        raise RemoteProtocolError("a message without a number, or with one of another length")
    if not topics:
        raise RemoteProtocolError("a message without a topic")
    if len(topics) > MAX_TOPICS:
        raise LimitExceededError(f"a message of more than {MAX_TOPICS} topics", limit="MAX_TOPICS")
    if len(signed) + len(signature) + len(key) > max_message_bytes:
        raise LimitExceededError(f"a message of more than {max_message_bytes} bytes", limit="max_message_bytes")
    named, author = tuple(map(_topic_in, topics)), _author_in(found.get(_FROM, b""))
    return Message(author, seqno, named, found.get(_DATA, b""), signature, key, signed)


@functools.lru_cache(maxsize=KNOWN_NAMES)
def _author_in(multihash: bytes) -> PeerId:
    try:
        return PeerId.from_bytes(multihash)
    except AddressError:
        raise RemoteProtocolError("a message without an author") from None


@functools.lru_cache(maxsize=KNOWN_NAMES)
def _topic_in(name: bytes) -> str:
    if not name:
        raise RemoteProtocolError("a topic without a name")
    if len(name) > MAX_TOPIC_BYTES:
        raise LimitExceededError(f"a topic of more than {MAX_TOPIC_BYTES} bytes", limit="MAX_TOPIC_BYTES")
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("a topic whose name is no text") from None
