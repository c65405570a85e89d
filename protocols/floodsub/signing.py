"""Signed messages (libp2p specification "pubsub", policy StrictSign): each says who wrote it, and proves it."""

import functools

from agentmesh.errors import RemoteProtocolError
from agentmesh.identity import Identity, PublicKey, peer_of, public_key_of, verify
from agentmesh.protocols.floodsub.events import Message
from agentmesh.protocols.floodsub.wire import MAX_SEQNO_BYTES, encode_unsigned
from agentmesh.types import PeerId

SIGN_PREFIX = b"libp2p-pubsub:"
MIN_NUMBER = 2**56
KNOWN_KEYS = 1024  # authors whose keys need not be read again
IDENTITY_MULTIHASH = 0x00  # the peer ID holds the key itself, behind two bytes


def sign_message(identity: Identity, topic: str, data: bytes, number: int) -> Message:
    """Write a message.

    Args:
        identity: its author.
        topic: what it is about.
        data: what it says.
        number: no two messages of an author have the same. From MIN_NUMBER up to 2**64: js-libp2p spells a smaller one
            in fewer bytes than we signed, and finds the signature wrong.
    """
    seqno = number.to_bytes(MAX_SEQNO_BYTES, "big")
    signed = encode_unsigned(identity.peer, seqno, (topic,), data)
    signature = identity.sign(SIGN_PREFIX + signed)
    return Message(identity.peer, seqno, (topic,), data, signature, signed=signed)


def verify_message(message: Message) -> None:
    """Raises RemoteProtocolError unless its author signed it."""
    if not verify(_key_of(message.author, message.key), SIGN_PREFIX + message.signed, message.signature):
        raise RemoteProtocolError("a message whose signature does not verify")


@functools.lru_cache(maxsize=KNOWN_KEYS)
def _key_of(author: PeerId, encoded: bytes) -> PublicKey:
    key = public_key_of(encoded or _inline_key(author))
    if peer_of(key) != author:
        raise RemoteProtocolError("a message with the key of somebody else")
    return key


def _inline_key(author: PeerId) -> bytes:
    if author.multihash[0] != IDENTITY_MULTIHASH:
        raise RemoteProtocolError("a message without the key that its author's ID does not hold")
    return author.multihash[2:]
