"""TLS peers that are not ours: with any certificate or none, any version, any ALPN; and a wire between two machines."""

from collections.abc import Callable, Sequence

import trio
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from OpenSSL import SSL

from agentmesh.certificates import make_certificate
from agentmesh.identity import Identity
from agentmesh.runtime.multistream import GREETING, encode_message
from agentmesh.runtime.tls import READ_BYTES, TLS_PROTOCOL, Side, TlsContext, TlsMachine

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
    answers: Sequence[bytes] = (),
    version: int = SSL.TLS1_3_VERSION,
) -> TlsMachine:
    """One end of a TLS connection that another implementation might make.

    Args:
        side: which end.
        proof: its certificate and key; None for none.
        above: further certificates that it sends.
        alpn: what it offers, if it dials.
        answers: what it agrees to, if it listens and this is offered.
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
    if answers:
        context.set_alpn_select_callback(
            lambda _, offered: next((one for one in answers if one in offered), SSL.NO_OVERLAPPING_PROTOCOLS)
        )
    return TlsMachine(SSL.Connection(context, None), side, *(memoryview(bytearray(READ_BYTES)) for _ in range(2)))


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


class StrangerContext(TlsContext):
    """Gives our own upgrade a TLS connection that another implementation might make; arguments as `stranger`."""

    def __init__(self, make: Callable[[Side], TlsMachine]) -> None:
        super().__init__(Identity.generate())
        self._make = make

    def connection(self, side: Side) -> TlsMachine:
        return self._make(side)


class StrangerLink:
    """A connection driven by hand: TLS, after a multistream proposal of it, over any stream."""

    def __init__(self, stream: trio.abc.Stream, tls: TlsMachine) -> None:
        self._stream = stream
        self._tls = tls

    async def dial(self) -> None:
        """Be the dialer of a handshake, up to its end."""
        await self._stream.send_all(GREETING + encode_message(TLS_PROTOCOL))
        await self._expect(GREETING + encode_message(TLS_PROTOCOL))
        await self._shake_hands()

    async def listen(self) -> None:
        """Be the listener."""
        await self._expect(GREETING + encode_message(TLS_PROTOCOL))
        await self._stream.send_all(GREETING + encode_message(TLS_PROTOCOL))
        await self._shake_hands()

    async def send(self, plaintext: bytes) -> None:
        self._tls.write(plaintext)
        await self._flush()

    async def receive(self) -> bytes:
        """Plaintext, b"" at the end."""
        try:
            while not (plaintext := bytes(self._tls.read())):
                if not (data := await self._stream.receive_some()):
                    return b""
                self._tls.receive_data(data)
        except EOFError:
            return b""
        return plaintext

    async def expect(self, expected: bytes) -> None:
        """These bytes must come, in whatever pieces."""
        received = b""
        while len(received) < len(expected):
            received += await self.receive()
        assert received == expected

    async def _shake_hands(self) -> None:
        while not self._tls.handshake():
            await self._flush()
            self._tls.receive_data(await self._stream.receive_some())
        await self._flush()

    async def _flush(self) -> None:
        if data := self._tls.data_to_send():
            await self._stream.send_all(data)

    async def _expect(self, expected: bytes) -> None:
        received = b""
        while len(received) < len(expected):
            received += await self._stream.receive_some(len(expected) - len(received))
        assert received == expected
