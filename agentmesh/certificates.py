"""TLS certificates that prove a peer's key (libp2p specification "tls").

The certificate is self-signed with a key of its own, made for it. An extension carries the peer's key and its signature
over the certificate's key; that is all that counts.
"""

import datetime
import hashlib
import time
import warnings

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.utils import CryptographyDeprecationWarning

from agentmesh.errors import CertificateError, RemoteProtocolError
from agentmesh.identity import Identity, peer_of, public_key_of, verify
from agentmesh.types import PeerId

EXTENSION = x509.ObjectIdentifier("1.3.6.1.4.1.53594.1.1")
SIGNED_PREFIX = b"libp2p-tls-handshake:"
BACKDATED = datetime.timedelta(days=30)  # for a peer whose clock is late
VALIDITY = datetime.timedelta(days=100 * 365)  # the certificate lives no longer than its process
MAX_CERTIFICATE_BYTES = 16 * 1024  # an RSA key of 8192 bits and its signature take 3
MIN_DIGEST_BYTES = 32
SERIAL_BITS = 159  # 20 bytes, as many as a serial number may have

CertificateKey = ec.EllipticCurvePrivateKey | Ed25519PrivateKey

_MALFORMED = (  # what cryptography raises, by where it finds the fault
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
_SEQUENCE, _OCTET_STRING = 0x30, 0x04


def make_certificate(identity: Identity, *, now: float | None = None) -> tuple[bytes, ec.EllipticCurvePrivateKey]:
    """Make a certificate that proves `identity`, and its key.

    Args:
        now: as for `certify`.
    Returns:
        The certificate in DER, and the P-256 key to use it with.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    return certify(identity, key, now=now), key


def certify(identity: Identity, key: CertificateKey, *, now: float | None = None) -> bytes:
    """A certificate, in DER, by which the holder of `key` proves to be `identity`.

    It carries that one extension, not marked critical: js-libp2p reads the first that there is.

    Args:
        key: the certificate's own.
        now: UTC, seconds since 1970; the system's clock when None. It is valid from a month before, for a century.
    """
    public = key.public_key()
    start = _instant(now) - BACKDATED
    name = x509.Name([x509.NameAttribute(x509.NameOID.SERIAL_NUMBER, "1")])  # a name may not be empty everywhere
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(_serial_of(public))
        .not_valid_before(start)
        .not_valid_after(start + VALIDITY)
        .add_extension(x509.UnrecognizedExtension(EXTENSION, _signed_key(identity, _spki(public))), critical=False)
    )
    certificate = builder.sign(key, None if isinstance(key, Ed25519PrivateKey) else SHA256())
    return certificate.public_bytes(Encoding.DER)


def peer_of_certificate(der: bytes, *, now: float | None = None) -> PeerId:
    """Whose certificate this is.

    That the peer holds the certificate's key is for the TLS handshake to prove.

    Args:
        now: UTC, seconds since 1970; the system's clock when None.
    Raises:
        CertificateError: it is malformed, not valid at this time, not signed with its own key, without libp2p's
            extension or with a critical one of another kind, or the extension's signature is not by the key in it.
    """
    if len(der) > MAX_CERTIFICATE_BYTES:
        raise CertificateError("a certificate that is too long")
    try:
        certificate = _load(der)
        _check_certificate(certificate, _instant(now))
        return _peer_of_extension(_extension_of(certificate), _spki(certificate.public_key()))
    except InvalidSignature:
        raise CertificateError("a certificate that is not signed with its own key") from None
    except _MALFORMED as exc:
        raise CertificateError(f"a malformed certificate: {type(exc).__name__}") from exc


def _load(der: bytes) -> x509.Certificate:
    with warnings.catch_warnings():
        # of what RFC 5280 forbids and other implementations do, as a serial number that is not positive
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        return x509.load_der_x509_certificate(der)


def _check_certificate(certificate: x509.Certificate, now: datetime.datetime) -> None:
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        raise CertificateError("a certificate that is not valid at this time")
    digest = certificate.signature_hash_algorithm  # None where the algorithm has its own, as Ed25519
    if digest is not None and digest.digest_size < MIN_DIGEST_BYTES:
        raise CertificateError(f"a certificate that is signed with {digest.name}")
    certificate.verify_directly_issued_by(certificate)


def _extension_of(certificate: x509.Certificate) -> bytes:
    found: bytes | None = None
    for extension in certificate.extensions:
        if extension.oid == EXTENSION:
            found = extension.value.public_bytes()
        elif extension.critical:
            raise CertificateError(f"a critical extension that is not known: {extension.oid.dotted_string}")
    if found is None:
        raise CertificateError("a certificate without libp2p's extension")
    return found


def _peer_of_extension(value: bytes, spki: bytes) -> PeerId:
    public, signature = _parse_signed_key(value)
    try:
        key = public_key_of(public)
    except RemoteProtocolError as exc:
        raise CertificateError(f"in libp2p's extension: {exc}") from None
    if not verify(key, SIGNED_PREFIX + spki, signature):
        raise CertificateError("libp2p's extension is not signed by the key in it")
    return peer_of(key)


def _signed_key(identity: Identity, spki: bytes) -> bytes:
    """SEQUENCE { publicKey OCTET STRING, signature OCTET STRING }"""
    parts = identity.public_key_bytes, identity.sign(SIGNED_PREFIX + spki)
    return _element(_SEQUENCE, b"".join(_element(_OCTET_STRING, part) for part in parts))


def _parse_signed_key(value: bytes) -> tuple[bytes, bytes]:
    inner, behind = _split(_SEQUENCE, value)
    public, rest = _split(_OCTET_STRING, inner)
    signature, end = _split(_OCTET_STRING, rest)
    if end or behind:
        raise CertificateError("libp2p's extension holds more than a key and a signature")
    return public, signature


def _element(tag: int, contents: bytes) -> bytes:
    return bytes((tag,)) + _der_length(len(contents)) + contents


def _split(tag: int, data: bytes) -> tuple[bytes, bytes]:
    """The contents of the DER element that `data` begins with, and what follows it."""
    if len(data) < 2 or data[0] != tag:
        raise CertificateError("libp2p's extension is not a sequence of two octet strings")
    length, start = data[1], 2
    if length >= 0x80:
        start += length - 0x80
        length = int.from_bytes(data[2:start])
    if data[1:start] != _der_length(length) or len(data) < start + length:
        raise CertificateError("libp2p's extension has a length that does not hold")
    return data[start : start + length], data[start + length :]


def _der_length(length: int) -> bytes:
    if length < 0x80:
        return bytes((length,))
    digits = length.to_bytes((length.bit_length() + 7) // 8)
    return bytes((0x80 + len(digits),)) + digits


def _serial_of(key: CertificatePublicKeyTypes) -> int:
    """As long for every key, and another one for each."""
    digest = int.from_bytes(hashlib.sha256(_spki(key)).digest())
    return 1 << SERIAL_BITS - 1 | digest % (1 << SERIAL_BITS - 1)


def _spki(key: CertificatePublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _instant(now: float | None) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time.time() if now is None else now, datetime.UTC)
