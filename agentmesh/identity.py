"""Who we are and who others are: keys in libp2p's encodings, and the peer IDs made of them (specification "peer-ids").

A member of the mesh has an Ed25519 key. Keys of the other kinds are read and verified, because a libp2p peer that
nobody here wrote may have one.
"""

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Self

import attrs
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from agentmesh.errors import IdentityError, RemoteProtocolError
from agentmesh.types import IDENTITY_ED25519, PeerId
from agentmesh.wire.codec import decode
from agentmesh.wire.messages.libp2p import crypto

PublicKey = Ed25519PublicKey | RSAPublicKey | ec.EllipticCurvePublicKey

CHALLENGE_WINDOW = 300.0  # seconds that a challenge may be old, or ahead
MAX_INLINE_KEY_BYTES = 42  # a longer key is hashed into its peer ID
MAX_KEY_FILE_BYTES = 4096
ED25519_PREFIX = IDENTITY_ED25519[2:]  # how an encoded Ed25519 key begins, and all but the key: type and length
ED25519_BYTES = len(ED25519_PREFIX) + 32
RSA_BITS = range(2048, 8192 + 1)  # what every libp2p takes; a larger key costs the verifier too much
ECDSA_CURVES = ("secp256r1", "secp384r1", "secp521r1")


@attrs.frozen
class Identity:
    """Our own key, and the peer that it makes us."""

    private_key: Ed25519PrivateKey = attrs.field(repr=False, eq=False)
    peer: PeerId = attrs.field(
        init=False, default=attrs.Factory(lambda self: peer_of(self.private_key.public_key()), takes_self=True)
    )

    @classmethod
    def generate(cls) -> Self:
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_protobuf(cls, data: bytes) -> Self:
        """Read a private key in libp2p's encoding.

        Raises:
            IdentityError: it is malformed, or no Ed25519 key.
        """
        try:
            message = decode(crypto.PrivateKey, data)
        except RemoteProtocolError:
            raise IdentityError("not a private key in libp2p's encoding") from None
        if message.type is not crypto.KeyType.ED25519:
            raise IdentityError("not an Ed25519 private key")
        return cls(_private_key_of(message.data or b""))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a key file. Blocks on the file system.

        Raises:
            IdentityError: it is no key file, or somebody but its owner has a right to it.
            OSError: it cannot be read; FileNotFoundError when there is none.
        """
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise IdentityError(
                    f"key file {os.fspath(path)} has mode {mode:04o}; it must be the owner's alone (0600)"
                )
            data = file.read(MAX_KEY_FILE_BYTES)
        try:
            return cls.from_protobuf(data)
        except IdentityError as exc:
            raise IdentityError(f"key file {os.fspath(path)}: {exc}") from None

    @classmethod
    def load_or_create(cls, path: str | os.PathLike[str]) -> Self:
        """Read a key file, or make one with a new key. Of two that make it at once, both have the same key.

        Raises:
            IdentityError, OSError: as `load` and `save`.
        """
        try:
            return cls.load(path)
        except FileNotFoundError:
            pass
        identity = cls.generate()
        try:
            _write_private(Path(path), identity.to_protobuf(), os.link)
        except FileExistsError:
            return cls.load(path)
        return identity

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the key file, in the place of any that is there: all of it or nothing, and nobody else may read it.

        A folder that has to be made for it is nobody else's either.
        """
        _write_private(Path(path), self.to_protobuf(), os.replace)

    def to_protobuf(self) -> bytes:
        """The private key in libp2p's encoding: a secret."""
        raw = self.private_key.private_bytes_raw() + self.private_key.public_key().public_bytes_raw()
        return bytes(crypto.PrivateKey(type=crypto.KeyType.ED25519, data=raw))

    @property
    def public_key_bytes(self) -> bytes:
        """The public key in libp2p's encoding."""
        return encode_public_key(self.private_key.public_key())

    def sign(self, data: bytes) -> bytes:
        return self.private_key.sign(data)


def public_key_of(data: bytes) -> PublicKey:
    """Read a public key in libp2p's encoding.

    Raises:
        RemoteProtocolError: it is malformed, of a kind that libp2p does not know, or RSA of a size it does not take.
    """
    if data.startswith(ED25519_PREFIX) and len(data) == ED25519_BYTES:  # nearly all of them are
        return Ed25519PublicKey.from_public_bytes(data[len(ED25519_PREFIX) :])
    message = decode(crypto.PublicKey, data)
    raw = message.data or b""
    try:
        match message.type:
            case crypto.KeyType.ED25519:
                return Ed25519PublicKey.from_public_bytes(raw)
            case crypto.KeyType.SECP256K1:
                return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), raw)
            case crypto.KeyType.RSA | crypto.KeyType.ECDSA:
                return _pkix_key_of(message.type, raw)
            case _:
                raise RemoteProtocolError("a public key of no known type")
    except (ValueError, UnsupportedAlgorithm):
        raise RemoteProtocolError("a malformed public key") from None


def encode_public_key(key: PublicKey) -> bytes:
    """The one encoding of a public key that its peer ID is made of."""
    match key:
        case Ed25519PublicKey():
            return ED25519_PREFIX + key.public_bytes_raw()
        case ec.EllipticCurvePublicKey() if key.curve.name == "secp256k1":
            kind, raw = crypto.KeyType.SECP256K1, key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
        case _:
            kind = crypto.KeyType.RSA if isinstance(key, RSAPublicKey) else crypto.KeyType.ECDSA
            raw = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return bytes(crypto.PublicKey(type=kind, data=raw))


def peer_of(key: PublicKey) -> PeerId:
    """The peer that holds this key."""
    encoded = encode_public_key(key)
    if len(encoded) <= MAX_INLINE_KEY_BYTES:
        return PeerId(bytes((0x00, len(encoded))) + encoded)
    return PeerId(b"\x12\x20" + hashlib.sha256(encoded).digest())


def verify(key: PublicKey, data: bytes, signature: bytes) -> bool:
    """Whether `key` signed `data`, in the way that libp2p signs with a key of its kind."""
    try:
        match key:
            case Ed25519PublicKey():
                key.verify(signature, data)
            case RSAPublicKey():
                key.verify(signature, data, padding.PKCS1v15(), SHA256())
            case _:
                key.verify(signature, data, ec.ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


def verify_signature(peer: PeerId, data: bytes, signature: bytes) -> bool:
    """Whether `peer` signed `data`. False also for a peer whose ID does not hold its key: only Ed25519 IDs do."""
    raw = peer.ed25519
    return raw is not None and verify(Ed25519PublicKey.from_public_bytes(raw), data, signature)


def challenge_text(purpose: str, peer: PeerId, unix_ms: int) -> bytes:
    """What a peer signs to prove to the control plane that it holds its key, for this purpose at this time.

    Args:
        purpose: what is asked for: "enroll", "refresh", "routers-lease"…
        unix_ms: UTC, milliseconds since 1970; the verifier takes it within CHALLENGE_WINDOW of its own clock.
    """
    return f"mesh:{purpose}:{peer}:{unix_ms}".encode()


def _private_key_of(raw: bytes) -> Ed25519PrivateKey:
    seed, public = raw[:32], raw[32:64]
    if len(raw) == 96 and raw[64:] == public:  # an older encoding, which says the public key twice
        raw = raw[:64]
    if len(raw) != 64:
        raise IdentityError("a private key of another length than 64 bytes")
    key = Ed25519PrivateKey.from_private_bytes(seed)
    if key.public_key().public_bytes_raw() != public:
        raise IdentityError("a private key with the public key of another")
    return key


def _pkix_key_of(kind: crypto.KeyType, der: bytes) -> RSAPublicKey | ec.EllipticCurvePublicKey:
    key = load_der_public_key(der)
    if kind is crypto.KeyType.RSA and isinstance(key, RSAPublicKey) and key.key_size in RSA_BITS:
        return key
    if kind is crypto.KeyType.ECDSA and isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in ECDSA_CURVES:
        return key
    raise RemoteProtocolError("a public key of another kind than it says, or of a size that is not taken")


def _write_private(path: Path, data: bytes, publish: Callable[[str, Path], None]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        publish(temporary, path)
    except OSError as exc:
        exc.filename = exc.filename or str(path)  # a disk that is full does not say whose file that was
        raise
    finally:
        Path(temporary).unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # or the new name may be lost with the power
    finally:
        os.close(folder)
