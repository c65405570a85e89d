"""Floodsub's values: what is published and subscribed to, who takes part, and what comes out of the machine."""

import enum

import attrs

from agentmesh.types import PeerId


class Role(enum.Enum):
    """How a host takes part."""

    LEAF = "leaf"  # a member: publishes to its routers, and hears them
    ROUTER = "router"  # passes messages on


@attrs.frozen
class Subscription:
    """A peer wants a topic's messages, or no more."""

    topic: str
    wanted: bool = True


@attrs.frozen
class Message:
    """A message as its author signed it; whoever forwards it changes nothing.

    Attributes:
        author: who wrote it, if the signature verifies (`signing.verify_message`).
        seqno: at most eight bytes; author and number together name the message.
        topics: what it is about; one, unless an older peer wrote it.
        data: what it says.
        signature: over `signed`.
        key: the author's public key in libp2p's encoding, b"" when `author` holds it.
        signed: the message's encoding without signature and key.
    """

    author: PeerId
    seqno: bytes
    topics: tuple[str, ...]
    data: bytes
    signature: bytes
    key: bytes = b""
    signed: bytes = attrs.field(default=b"", repr=False, eq=False)

    @property
    def id(self) -> bytes:
        """Its name, by which it is known again."""
        return self.author.multihash + self.seqno


@attrs.frozen
class Rpc:
    """What one peer tells another at once."""

    subscriptions: tuple[Subscription, ...] = ()
    messages: tuple[Message, ...] = ()


class Verdict(enum.Enum):
    """What a validator says of a message whose signature is good."""

    ACCEPT = "accept"  # delivered and passed on
    IGNORE = "ignore"  # neither, and nobody's fault: it is too old, say
    REJECT = "reject"  # neither, and whoever sent it should have known


class Fate(enum.StrEnum):
    """What became of a message."""

    PUBLISHED = "published"  # by us
    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    UNWANTED = "unwanted"  # nobody here subscribes to its topics
    IGNORED = "ignored"
    REJECTED = "rejected"
    DENIED = "denied"  # a leaf said what it may not say


class CutReason(enum.StrEnum):
    """Why a link is no more. Those that are limits are called as the limit is."""

    ENDED = "ended"  # by the peer, by us, or with the session
    BROKEN = "broken"  # the peer broke the protocol
    REPLACED = "replaced"  # it opened another stream
    SLOW = "slow"  # it did not take what was sent to it
    MESSAGES = "max_messages"
    BYTES = "max_bytes"
    CHANGES = "max_changes"
    REJECTED = "max_rejected"
    SUBSCRIPTIONS = "max_subscriptions"
    TOPICS = "max_topics"


@attrs.frozen
class MessageReceived:
    """A message on a topic that we subscribe to; `peer` passed it on."""

    message: Message
    peer: PeerId


@attrs.frozen
class LinkCut:
    """A link is gone, and both its streams are to be closed or reset with `code`."""

    number: int
    peer: PeerId
    reason: CutReason
    code: int


FloodsubEvent = MessageReceived | LinkCut
