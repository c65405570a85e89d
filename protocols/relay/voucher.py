"""Reservation vouchers: a relay's signed word that a peer is reachable through it until some time.

A signed envelope (libp2p "RFC 0002") in the domain "libp2p-relay-rsvp" around a voucher of payload type 0x0302. Nothing
in the mesh rests on one: the relay's own book decides. They are given because libp2p peers may show them around.
"""

from agentmesh.errors import AddressError, RemoteProtocolError
from agentmesh.identity import Identity, peer_of, public_key_of, verify
from agentmesh.protocols.relay.wire import MAX_EXPIRY
from agentmesh.types import PeerId
from agentmesh.wire.codec import decode
from agentmesh.wire.framing import encode_frame
from agentmesh.wire.messages.libp2p.record import Envelope, ReservationVoucher

DOMAIN = b"libp2p-relay-rsvp"
PAYLOAD_TYPE = bytes.fromhex("0302")


def seal_voucher(relay: Identity, peer: PeerId, expires_at: float) -> bytes:
    """The envelope for a reservation that `relay` gave `peer` until `expires_at`, wall-clock seconds."""
    payload = bytes(ReservationVoucher(relay=relay.peer.multihash, peer=peer.multihash, expiration=int(expires_at)))
    return bytes(
        Envelope(
            public_key=relay.public_key_bytes,
            payload_type=PAYLOAD_TYPE,
            payload=payload,
            signature=relay.sign(_signed_text(payload)),
        )
    )


def open_voucher(data: bytes, relay: PeerId, peer: PeerId) -> float:
    """Until when `relay` says that `peer` is reachable through it, wall-clock seconds.

    Raises:
        RemoteProtocolError: the relay has not signed that.
    """
    envelope = decode(Envelope, data)
    payload = envelope.payload or b""
    key = public_key_of(envelope.public_key or b"")
    if envelope.payload_type != PAYLOAD_TYPE or peer_of(key) != relay:
        raise RemoteProtocolError("an envelope of something else, or of somebody else")
    if not verify(key, _signed_text(payload), envelope.signature or b""):
        raise RemoteProtocolError("a voucher whose signature does not verify")
    voucher = decode(ReservationVoucher, payload)
    if (_peer(voucher.relay), _peer(voucher.peer)) != (relay, peer):
        raise RemoteProtocolError("a voucher for another reservation")
    return float(min(voucher.expiration or 0, MAX_EXPIRY))


def _signed_text(payload: bytes) -> bytes:
    return encode_frame(DOMAIN) + encode_frame(PAYLOAD_TYPE) + encode_frame(payload)


def _peer(multihash: bytes | None) -> PeerId | None:
    try:
        return PeerId.from_bytes(multihash or b"")
    except AddressError:
        return None
