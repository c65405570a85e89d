"""Proof that a caller holds the key of the peer it names: a signed text with a purpose and an instant in it."""

import attrs

from agentmesh.control_plane.refusals import bad_request, unauthorized
from agentmesh.errors import AddressError
from agentmesh.identity import CHALLENGE_WINDOW, challenge_text, verify_signature
from agentmesh.types import PeerId

STALE = "stale or invalid challenge timestamp"  # clients look for these words, set their clock and sign once more


@attrs.frozen
class Proof:
    """A signature over "mesh:<purpose>:<peer>:<unix_ms>", the peer in its canonical spelling."""

    purpose: str
    unix_ms: int
    signature: bytes = attrs.field(repr=False)


def parse_member(text: str, public_key: bytes | None = None) -> PeerId:
    """The peer of any spelling of its ID.

    Args:
        public_key: raw, or in libp2p's encoding; None when it does not come with the request.
    Raises:
        RefusedError: 400, it is none of an Ed25519 key, or of another.
    """
    peer = parse_peer(text)
    # The ID of an Ed25519 peer is its key in libp2p's encoding.
    if public_key is not None and public_key not in (peer.ed25519, peer.multihash[2:]):
        raise bad_request("peer_id is not that of public_key")
    return peer


def parse_peer(text: str) -> PeerId:
    """The peer of any spelling of its ID. Raises RefusedError (400)."""
    try:
        peer = PeerId.parse(text)
    except AddressError as exc:
        raise bad_request("peer_id is not a peer ID") from exc
    if peer.ed25519 is None:
        raise bad_request("peer_id is not that of an Ed25519 key")
    return peer


def check_proof(peer: PeerId, proof: Proof, now: float) -> None:
    """Return if `peer` signed at `now` (wall seconds), give or take CHALLENGE_WINDOW. Raises RefusedError (401)."""
    if abs(now - proof.unix_ms / 1000) > CHALLENGE_WINDOW:
        raise unauthorized(STALE)
    if not verify_signature(peer, challenge_text(proof.purpose, peer, proof.unix_ms), proof.signature):
        raise unauthorized("the challenge is not signed with the key of peer_id")
