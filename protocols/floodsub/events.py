"""Floodsub's values: what is published, who subscribes."""

import attrs

from agentmesh.types import PeerId


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
