"""Whether to believe a set of keys."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from agentmesh.credentials import TrustedKeys
from agentmesh.errors import RemoteProtocolError
from agentmesh.wire.messages.mesh.v1 import KeysResponse


def vouched_keys(answer: KeysResponse, trusted: TrustedKeys | None) -> TrustedKeys:
    """The keys in a control plane's answer.

    Args:
        answer: each key in it should have signed it.
        trusted: keys that we honour already, one of which has to have signed; None believes all of them together.
    Raises:
        RemoteProtocolError: no trusted key has signed, or, when none is, one key in it has not.
    """
    unsigned = KeysResponse.parse(bytes(answer))  # fields of a newer control plane are signed too, and copies lose them
    unsigned.signatures = []
    signed = bytes(unsigned)
    pairs = zip(answer.public_keys, answer.signatures, strict=False)
    signers = {key for key, signature in pairs if _has_signed(key, signed, signature)}
    if trusted is None and signers != set(answer.public_keys):
        raise RemoteProtocolError("a key in the control plane's set has not signed it")
    if not signers & (signers if trusted is None else trusted.keys):
        raise RemoteProtocolError("no key that we trust has signed the control plane's set")
    return TrustedKeys(frozenset(answer.public_keys))


def _has_signed(key: bytes, data: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True
