"""What the control plane tells every member at once: a ban, a new key, a new policy. Each is signed by one of its keys.

An event says that something is so at a time, and hearing it twice changes nothing. Events travel as the data of
messages on EVENTS_TOPIC.
"""

import datetime

import attrs
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from agentmesh.credentials import SigningKey, TrustedKeys
from agentmesh.errors import AddressError, RemoteProtocolError
from agentmesh.identity import verify
from agentmesh.types import PeerId
from agentmesh.wire.codec import decode
from agentmesh.wire.messages.mesh import v1 as pb

EVENTS_TOPIC = "/mesh/events/v1"
EVENT_WINDOW = 300.0  # seconds that an event may be old, or ahead
MAX_EVENT_BYTES = 1024
KEY_BYTES = 32


@attrs.frozen
class Banned:
    """A peer is out. `at`: since when, wall-clock seconds."""

    peer: PeerId
    at: float


@attrs.frozen
class KeyRotated:
    """A key takes over from the one that signed this."""

    key: bytes
    at: float


@attrs.frozen
class PolicyUpdated:
    """Who may do what has changed: ask the control plane."""

    at: float


@attrs.frozen
class UnknownEvent:
    """Something that a newer control plane says. It is passed on, and means nothing here."""

    type: int
    at: float


Event = Banned | KeyRotated | PolicyUpdated | UnknownEvent


def sign_event(key: SigningKey, event: Banned | KeyRotated | PolicyUpdated) -> bytes:
    """Write an event down.

    Args:
        key: of KeyRotated, the one that retires; of the others, the one in force.
    """
    message = pb.MeshEvent(event_time=datetime.datetime.fromtimestamp(event.at, datetime.UTC))
    match event:
        case Banned(peer):
            message.type, message.peer_id = pb.MeshEventType.BANNED, str(peer)
        case KeyRotated(new):
            message.type, message.new_public_key = pb.MeshEventType.KEY_ROTATION, new
        case PolicyUpdated():
            message.type = pb.MeshEventType.POLICY_UPDATE
    message.signature = key.sign(bytes(message))
    return bytes(message)


def read_event(data: bytes, trusted: TrustedKeys) -> Event:
    """Read an event. Whether it is fresh (`is_fresh`) is another question.

    Raises:
        RemoteProtocolError: it is none, lacks what its type needs, or none of the trusted keys signed it.
    """
    if len(data) > MAX_EVENT_BYTES:
        raise RemoteProtocolError(f"an event of more than {MAX_EVENT_BYTES} bytes")
    message = decode(pb.MeshEvent, data)
    event = _event_in(message)
    signature, message.signature = message.signature, b""  # a copy would lose the fields that are news to us
    signed = bytes(message)
    if not any(_has_signed(key, signed, signature) for key in trusted.keys):
        raise RemoteProtocolError("an event that no trusted key has signed")
    return event


def is_fresh(event: Event, now: float) -> bool:
    """Whether an event is of about now, wall-clock seconds: an old one may have been undone since."""
    return abs(now - event.at) <= EVENT_WINDOW


def _event_in(message: pb.MeshEvent) -> Event:
    if message.event_time is None:
        raise RemoteProtocolError("an event without a time")
    at, type = message.event_time.timestamp(), int(message.type)  # a number, as a newer one may not be in the enum
    if type == pb.MeshEventType.BANNED:
        return Banned(_peer_in(message.peer_id), at)
    if type == pb.MeshEventType.KEY_ROTATION:
        return KeyRotated(_key_in(message.new_public_key), at)
    if type == pb.MeshEventType.POLICY_UPDATE:
        return PolicyUpdated(at)
    return UnknownEvent(type, at)


def _key_in(key: bytes) -> bytes:
    if len(key) != KEY_BYTES:
        raise RemoteProtocolError("a key rotation without a key")
    return key


def _peer_in(text: str) -> PeerId:
    try:
        return PeerId.parse(text)
    except AddressError:
        raise RemoteProtocolError("a ban of nobody") from None


def _has_signed(key: bytes, data: bytes, signature: bytes) -> bool:
    return verify(Ed25519PublicKey.from_public_bytes(key), data, signature)
