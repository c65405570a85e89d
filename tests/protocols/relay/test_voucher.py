import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.errors import RemoteProtocolError
from agentmesh.identity import Identity
from agentmesh.protocols.relay.voucher import DOMAIN, PAYLOAD_TYPE, open_voucher, seal_voucher
from agentmesh.types import PeerId
from agentmesh.wire.codec import decode
from agentmesh.wire.messages.libp2p.record import Envelope, ReservationVoucher

RELAY = Identity.generate()
PEER = Identity.generate().peer
SEALED = seal_voucher(RELAY, PEER, 1_900_000_000.9)


def test_a_voucher_says_what_the_relay_signed() -> None:
    assert open_voucher(SEALED, RELAY.peer, PEER) == 1_900_000_000.0


def test_the_envelope_is_libp2ps() -> None:
    envelope = decode(Envelope, SEALED)
    assert (envelope.public_key, envelope.payload_type) == (RELAY.public_key_bytes, bytes([0x03, 0x02]))
    assert (envelope.payload_type, DOMAIN) == (PAYLOAD_TYPE, b"libp2p-relay-rsvp")
    payload = decode(ReservationVoucher, envelope.payload or b"")
    assert (payload.relay, payload.peer) == (RELAY.peer.multihash, PEER.multihash)


def test_a_voucher_of_another_relay_or_for_another_peer_is_refused() -> None:
    stranger = Identity.generate().peer
    for relay, peer in ((stranger, PEER), (RELAY.peer, stranger)):
        with pytest.raises(RemoteProtocolError):
            open_voucher(SEALED, relay, peer)


def forged(**changes: bytes) -> bytes:
    envelope = decode(Envelope, SEALED)
    for name, value in changes.items():
        setattr(envelope, name, value)
    return bytes(envelope)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        forged(payload_type=b"\x03\x01"),
        forged(signature=bytes(64)),
        forged(public_key=b""),
        forged(payload=bytes(ReservationVoucher(relay=RELAY.peer.multihash, peer=PEER.multihash, expiration=2**60))),
    ],
)
def test_what_the_relay_did_not_sign_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        open_voucher(data, RELAY.peer, PEER)


def test_a_signed_payload_that_names_nobody_is_refused() -> None:
    payload = bytes(ReservationVoucher(expiration=5))
    signed = b"".join(bytes([len(part)]) + part for part in (DOMAIN, PAYLOAD_TYPE, payload))
    envelope = Envelope(
        public_key=RELAY.public_key_bytes, payload_type=PAYLOAD_TYPE, payload=payload, signature=RELAY.sign(signed)
    )
    with pytest.raises(RemoteProtocolError):
        open_voucher(bytes(envelope), RELAY.peer, PEER)


@given(st.integers(0, len(SEALED) - 1), st.integers(1, 255))
def test_no_changed_byte_passes_for_another_voucher(at: int, change: int) -> None:
    data = SEALED[:at] + bytes([SEALED[at] ^ change]) + SEALED[at + 1 :]
    try:
        until = open_voucher(data, RELAY.peer, PEER)
    except RemoteProtocolError:
        return
    assert until == 1_900_000_000.0


@given(st.binary(min_size=32, max_size=32).map(PeerId.from_ed25519), st.floats(0, 2**40))
def test_vouchers_come_back(peer: PeerId, expires_at: float) -> None:
    assert open_voucher(seal_voucher(RELAY, peer, expires_at), RELAY.peer, peer) == float(int(expires_at))
