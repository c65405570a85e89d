"""TLS peers that are not ours: with any certificate or none, any version, any ALPN; and a wire between two machines."""

from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from OpenSSL import SSL

from agentmesh.certificates import make_certificate
from agentmesh.identity import Identity
from agentmesh.runtime.tls import READ_BYTES, Side, TlsMachine

METHODS = {Side.DIALER: SSL.TLS_CLIENT_METHOD, Side.LISTENER: SSL.TLS_SERVER_METHOD}
EVERYTHING = 1 << 30

Proof = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def proof_of(identity: Identity) -> Proof:
    """An honest certificate and its key."""
    der, key = make_certificate(identity)
    return x509.load_der_x509_certificate(der), key


def forged_proof_of(identity: Identity) -> Proof:
    """A certificate that says it is `identity`'s, made by somebody without its key: the extension is taken from an
    honest one, so that its signature is over another certificate's key.
    """
    honest, _ = proof_of(identity)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(honest.subject)
        .issuer_name(honest.issuer)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(honest.not_valid_before_utc)
        .not_valid_after(honest.not_valid_after_utc)
    )
    for extension in honest.extensions:
        builder = builder.add_extension(extension.value, critical=False)
    return builder.sign(key, SHA256()), key


def stranger(
    side: Side,
    proof: Proof | None = None,
    *,
    above: Sequence[x509.Certificate] = (),
    alpn: Sequence[bytes] = (),
    version: int = SSL.TLS1_3_VERSION,
) -> TlsMachine:
    """One end of a TLS connection that another implementation might make.

    Args:
        side: which end.
        proof: its certificate and key; None for none.
        above: further certificates that it sends.
        alpn: what it offers, if it dials.
        version: of TLS, this one only.
    """
    context = SSL.Context(METHODS[side])
    context.set_min_proto_version(version)
    context.set_max_proto_version(version)
    context.set_verify(SSL.VERIFY_PEER, _take_any)
    if proof is not None:
        certificate, key = proof
        context.use_certificate(certificate)
        context.use_privatekey(key)
    for certificate in above:
        context.add_extra_chain_cert(certificate)
    if alpn:
        context.set_alpn_protos(list(alpn))
    return TlsMachine(SSL.Connection(context, None), side, memoryview(bytearray(READ_BYTES)))


def _take_any(*_: object) -> bool:
    return True


def carry(sender: TlsMachine, receiver: TlsMachine, cut: int = EVERYTHING) -> int:
    """Carry what `sender` has for the wire to `receiver`, in pieces of `cut` bytes. Returns how much it was."""
    wire = sender.data_to_send()
    for start in range(0, len(wire), cut):
        receiver.receive_data(wire[start : start + cut])
    return len(wire)


def shake_hands(dialer: TlsMachine, listener: TlsMachine, cut: int = EVERYTHING) -> None:
    """Run the handshake until both sides have finished, a step after each piece that comes."""
    finished = [dialer.handshake(), listener.handshake()]
    while not all(finished):
        for one, other in ((dialer, listener), (listener, dialer)):
            wire = one.data_to_send()
            for start in range(0, len(wire), cut):
                other.receive_data(wire[start : start + cut])
                finished[other is listener] = other.handshake()
