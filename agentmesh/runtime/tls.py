"""TLS 1.3 over memory, sans-IO, with libp2p certificates on both sides (libp2p specification "tls").

pyOpenSSL, because the standard library cannot take a client certificate that no authority signed.
"""

import enum
import threading

from OpenSSL import SSL, crypto

from agentmesh.certificates import CertificateKey, certify, make_certificate, peer_of_certificate
from agentmesh.errors import CertificateError, RemoteProtocolError
from agentmesh.identity import Identity
from agentmesh.types import PeerId

TLS_PROTOCOL = "/tls/1.0.0"
YAMUX_PROTOCOL = "/yamux/1.0.0"
ALPN_PREFERENCE = (YAMUX_PROTOCOL.encode(), b"libp2p")  # the muxer agreed in the handshake, or multistream after it
READ_BYTES = 256 * 1024
RECORD_BYTES = 16 * 1024  # of plaintext in one TLS record; a read gives no more at once
RECORD_OVERHEAD = 22  # header, content type and tag around it
FLIGHT_BYTES = 16 * 1024  # room for a handshake flight, an alert, a key update


class Side(enum.Enum):
    DIALER = "dialer"
    LISTENER = "listener"


class _Memory(threading.local):
    """What ciphertext is received into and plaintext decrypted into: one of each for all connections of a thread, since
    they are filled and taken without an await between.
    """

    def __init__(self) -> None:
        self.ciphertext = memoryview(bytearray(READ_BYTES))
        self.plaintext = memoryview(bytearray(READ_BYTES))


_memory = _Memory()


class TlsContext:
    """What all TLS connections of one identity share: certificate, key and settings.

    Args:
        identity: whose key the certificate proves.
        key: the certificate's own; a new P-256 key when it is None.
    """

    def __init__(self, identity: Identity, key: CertificateKey | None = None) -> None:
        certificate, key = (certify(identity, key), key) if key else make_certificate(identity)
        x509 = crypto.load_certificate(crypto.FILETYPE_ASN1, certificate).to_cryptography()
        self._contexts = {side: _make_context(side) for side in Side}
        for context in self._contexts.values():
            context.use_certificate(x509)
            context.use_privatekey(key)

    def connection(self, side: Side) -> "TlsMachine":
        return TlsMachine(SSL.Connection(self._contexts[side], None), side, _memory.ciphertext, _memory.plaintext)


def _make_context(side: Side) -> SSL.Context:
    context = SSL.Context(SSL.TLS_CLIENT_METHOD if side is Side.DIALER else SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(SSL.TLS1_3_VERSION)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)  # an idle connection gives its buffers back: 39 KiB an endpoint
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_options(SSL.OP_NO_TICKET)  # no session is ever resumed: 1.2 KB less of each handshake
    # The certificate is self-signed by design: what it proves is checked in `peer_of_certificate`.
    context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, _take_any)
    if side is Side.DIALER:
        context.set_alpn_protos(list(ALPN_PREFERENCE))
    else:
        context.set_alpn_select_callback(
            lambda _connection, offered: next(
                (ours for ours in ALPN_PREFERENCE if ours in offered), SSL.NO_OVERLAPPING_PROTOCOLS
            )
        )
    return context


def _take_any(*_: object) -> bool:
    return True


class TlsMachine:
    """One side of one TLS connection: ciphertext in and plaintext out, and back.

    Made by `TlsContext.connection`. Every method may raise RemoteProtocolError: the peer does not speak TLS 1.3, or
    ended with an alert; what `data_to_send` gives then is our alert.

    Attributes:
        buffer: memory to receive ciphertext into, shared by the thread's connections: give what came to `receive_data`
            before the next await.
    """

    def __init__(self, connection: SSL.Connection, side: Side, ciphertext: memoryview, plaintext: memoryview) -> None:
        self.buffer = ciphertext
        self._connection = connection
        self._side = side
        self._view = plaintext
        self._expected = 0  # ciphertext of what was written since the last `data_to_send`
        if side is Side.DIALER:
            connection.set_connect_state()
        else:
            connection.set_accept_state()

    def name_server(self, name: str) -> None:
        """Have the dialer's first message say, in clear, which host it is for (SNI); before the handshake."""
        self._connection.set_tlsext_host_name(name.encode())

    def handshake(self) -> bool:
        """Go on with the handshake. True once this side has finished it."""
        try:
            self._connection.do_handshake()
        except SSL.WantReadError:
            return False
        except SSL.Error as exc:
            raise _translated(exc, "handshake") from exc
        return True

    @property
    def peer(self) -> PeerId:
        """Who the certificate proves the other side to be; after the handshake.

        Raises:
            CertificateError: it proves nothing.
        """
        leaf = self._connection.get_peer_certificate()
        chain = self._connection.get_peer_cert_chain() or []
        above = len(chain) - (self._side is Side.DIALER)  # OpenSSL counts the leaf on the dialer's side only
        if leaf is None or above:
            raise CertificateError(f"not exactly one certificate: {'no' if leaf is None else above} above it")
        return peer_of_certificate(crypto.dump_certificate(crypto.FILETYPE_ASN1, leaf))

    @property
    def alpn(self) -> str:
        """The protocol agreed in ALPN, or "" when there was none."""
        return self._connection.get_alpn_proto_negotiated().decode()

    def receive_data(self, ciphertext: bytes | bytearray | memoryview) -> None:
        """Feed bytes from the peer; `read` gives what they say."""
        if ciphertext:
            self._connection.bio_write(ciphertext)

    def read(self) -> memoryview:
        """Plaintext that has arrived, up to 256 KiB; empty when there is none yet.

        The memory is shared by the thread's connections: take the bytes before any other `read`.

        Raises:
            EOFError: the peer closed its direction properly.
        """
        filled = 0
        while filled < READ_BYTES:
            try:
                filled += self._connection.recv_into(self._view[filled : filled + RECORD_BYTES])
            except SSL.WantReadError:
                break
            except SSL.ZeroReturnError:
                if not filled:
                    raise EOFError from None
                break
            except SSL.Error as exc:
                raise _translated(exc, "record") from exc
        return self._view[:filled]

    def write(self, plaintext: bytes | memoryview) -> None:
        """Encrypt; the ciphertext is then in `data_to_send`."""
        try:
            self._connection.sendall(plaintext)
            self._expected += len(plaintext) + (len(plaintext) // RECORD_BYTES + 1) * RECORD_OVERHEAD
        except SSL.Error as exc:
            raise _translated(exc, "write") from exc

    def close(self) -> None:
        """Say that we send no more."""
        try:
            self._connection.shutdown()
        except SSL.Error:
            return  # the handshake never finished: there is nothing to say

    def data_to_send(self) -> bytes:
        """Ciphertext for the peer; b"" when there is none."""
        # pyOpenSSL allocates as much as it is asked for, so it is asked for what there is.
        size, self._expected = self._expected + FLIGHT_BYTES, 0
        parts: list[bytes] = []
        while not parts or len(parts[-1]) == size:
            try:
                parts.append(self._connection.bio_read(size))
            except SSL.WantReadError:
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _translated(exc: SSL.Error, during: str) -> RemoteProtocolError:
    """SSL.Error carries OpenSSL's queue of (library, function, reason), its subclasses other things or nothing."""
    queue: list[tuple[str, str, str]] = exc.args[0] if type(exc) is SSL.Error and exc.args else []
    reasons = ", ".join(reason for _, _, reason in queue)
    return RemoteProtocolError(f"TLS {during} failed: {reasons or repr(exc)}")
