"""From a byte stream to a secure link: TLS proposed in the first flight, the muxer agreed in ALPN.

    dialer    multistream header, /tls/1.0.0, ClientHello  ─────▶
              ◀─────  header, /tls/1.0.0, ServerHello … Finished      listener
              Certificate … Finished, first frames         ─────▶

So a session costs no round trip more than TLS. A peer that names no muxer in ALPN is asked by multistream inside TLS.

An address that ends in `/tls` leaves multistream out: the ClientHello comes first, with the host's name in it, so that
middle boxes can pass TLS on by name. The listener tells the two by their first byte, and from both what comes through a
door (`agentmesh.runtime.doors`).
"""

from collections.abc import Mapping
from typing import Self

import attrs
import trio

from agentmesh.abc import ByteStream, Link
from agentmesh.errors import LimitExceededError, MeshError, PeerMismatchError, RemoteProtocolError
from agentmesh.runtime.direct import buffer_receiver, nowait_sender
from agentmesh.runtime.doors import Door, Visitor, read_preamble
from agentmesh.runtime.multistream import Proposer, Responder
from agentmesh.runtime.tls import TLS_PROTOCOL, YAMUX_PROTOCOL, Side, TlsContext, TlsMachine
from agentmesh.types import PeerId

MAX_HANDSHAKE_BYTES = 64 * 1024  # of one peer, before it has proved who it is
HANDSHAKE_READ_BYTES = 16 * 1024  # small, so that what a fast dialer sends behind its handshake is not counted as one
TLS_HANDSHAKE = 0x16  # how a ClientHello begins (RFC 8446, 5.1); multistream begins otherwise
ALERT_TIMEOUT = 1.0  # seconds to tell a peer why its handshake failed
ASK_BYTES = 64 * 1024  # at once of a stream that allocates as much
END = memoryview(b"")
# What a handshake may end in without anything being wrong here.
HANDSHAKE_ERRORS = (MeshError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError)


class SecureLink(Link):
    """The byte stream inside TLS, to a peer that has proved its ID.

    Attributes:
        peer: who is at the other end.
    """

    peer: PeerId

    def __init__(self, stream: ByteStream, tls: TlsMachine, peer: PeerId) -> None:
        self.peer = peer
        self._stream = stream
        self._tls = tls
        self._send_nowait = nowait_sender(stream)
        self._rest: bytes | memoryview = b""  # of the ciphertext
        self._cut = False
        self._receive_into = buffer_receiver(stream)

    def write(self, data: bytes) -> bool:
        if self._cut:
            raise trio.BrokenResourceError("an earlier write was cut off")
        self._tls.write(data)
        return self._send()

    def _send(self) -> bool:
        data = self._tls.data_to_send()
        if self._rest:
            self._rest = b"".join((self._rest, data))
            return False
        sent = self._send_nowait(data)
        if sent == len(data):
            return True
        self._rest = memoryview(data)[sent:]
        return False

    async def flush(self) -> None:
        """Once a record was cut off in the middle, nothing that follows it can be read."""
        self._cut = True
        await self._stream.send_all(self._rest)
        self._cut, self._rest = False, b""

    async def receive_some(self) -> memoryview:
        try:
            while not (plaintext := self._tls.read()):
                ciphertext = await self._receive()
                if not ciphertext:
                    return END
                self._tls.receive_data(ciphertext)
        except EOFError:
            return END
        return plaintext

    async def _receive(self) -> bytes | bytearray | memoryview:
        if self._receive_into is None:
            return await self._stream.receive_some(ASK_BYTES)
        buffer = self._tls.buffer
        return buffer[: await self._receive_into(buffer)]

    async def aclose(self) -> None:
        """Say goodbye, if that is possible in a moment, and close the stream under it."""
        try:
            with trio.move_on_after(ALERT_TIMEOUT):
                self._tls.close()
                if not self._cut and not self._send():
                    await self.flush()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # it is gone, or its writer was stuck: closing is all that is left
        finally:
            await self._stream.aclose()


@attrs.frozen
class Upgraded:
    """A link ready for its mux. `early` are plaintext bytes that came with the last of the negotiation."""

    link: Link
    early: bytes

    @property
    def peer(self) -> PeerId:
        return self.link.peer


async def upgrade_outbound(
    stream: ByteStream, context: TlsContext, expected: PeerId | None, tls_name: str | None = None
) -> Upgraded:
    """Secure a stream that we dialled.

    Args:
        stream: from a transport; stays the caller's to close.
        context: our identity.
        expected: who must answer; None takes anyone.
        tls_name: `Address.tls_name` of what was dialled: TLS comes first and names this; None negotiates it.
    Raises:
        PeerMismatchError: another peer answered. Nothing of any protocol was sent to it.
        CertificateError: it proved nothing.
        RemoteProtocolError: it does not speak multistream or TLS 1.3, or says too much.
        RejectedError: it does not speak TLS, or yamux.
        trio.BrokenResourceError: the stream ended.
    Cancellation: safe; the stream is then of no more use.
    """
    return await _Upgrade.outbound(stream, context, tls_name).run(expected)


async def upgrade_inbound(stream: ByteStream, context: TlsContext, early: bytes | bytearray | None = None) -> Upgraded:
    """Secure a stream that we accepted, however it begins. Errors and cancellation as `upgrade_outbound`.

    Args:
        early: its first bytes, if they were read.
    """
    return await _Upgrade.inbound(stream, context, early).run(None)


async def receive_inbound(stream: ByteStream, context: TlsContext, doors: Mapping[int, Door]) -> Upgraded | Visitor:
    """`upgrade_inbound`, unless the stream begins as one for a door does.

    Args:
        doors: by their first bytes.
    Returns:
        The link; or the visitor, of whom no more was read than the preamble.
    """
    first = await stream.receive_some(HANDSHAKE_READ_BYTES)
    if first and (door := doors.get(first[0])) is not None:
        return await read_preamble(stream, first, door)
    return await upgrade_inbound(stream, context, first)


class _Upgrade:
    """One handshake under way. `security` is None when nothing is negotiated before TLS."""

    def __init__(
        self,
        stream: ByteStream,
        tls: TlsMachine,
        security: Proposer | Responder | None,
        side: Side,
        early: bytes | bytearray | None = None,
    ) -> None:
        self._stream = stream
        self._tls = tls
        self._security = security
        self._side = side
        self._early = early
        self._received = 0

    @classmethod
    def outbound(cls, stream: ByteStream, context: TlsContext, tls_name: str | None) -> Self:
        tls = context.connection(Side.DIALER)
        if tls_name:
            tls.name_server(tls_name)
        return cls(stream, tls, Proposer([TLS_PROTOCOL]) if tls_name is None else None, Side.DIALER)

    @classmethod
    def inbound(cls, stream: ByteStream, context: TlsContext, early: bytes | bytearray | None) -> Self:
        return cls(stream, context.connection(Side.LISTENER), Responder(TLS_PROTOCOL.__eq__), Side.LISTENER, early)

    async def run(self, expected: PeerId | None) -> Upgraded:
        try:
            await self._secure()
            peer = self._tls.peer
            if expected is not None and peer != expected:
                raise PeerMismatchError(f"dialled {expected}, reached {peer}")
        except RemoteProtocolError:
            await self._send_alert()
            raise
        link = SecureLink(self._stream, self._tls, peer)
        early = b"" if self._tls.alpn == YAMUX_PROTOCOL else await self._agree_on_muxer(link)
        return Upgraded(link, early)

    async def _secure(self) -> None:
        """multistream and TLS. The dialer's ClientHello leaves with its proposal, before the answer to it."""
        if self._side is Side.DIALER:
            self._tls.handshake()
            await self._flush()
        data = await self._receive()
        if self._side is Side.LISTENER and data[0] == TLS_HANDSHAKE:
            self._security = None
        if self._security is not None:
            data = await self._negotiate(self._security, data)
        self._tls.receive_data(data)
        while not self._tls.handshake():
            await self._flush()
            self._tls.receive_data(await self._receive())
        await self._flush()

    async def _negotiate(self, security: Proposer | Responder, data: bytes | bytearray) -> bytes:
        """multistream, from its first bytes on; what came behind it."""
        while security.receive_data(data) is None:
            await self._flush()
            data = await self._receive()
        return security.trailing()

    async def _agree_on_muxer(self, link: SecureLink) -> bytes:
        muxer = Proposer([YAMUX_PROTOCOL]) if self._side is Side.DIALER else Responder(YAMUX_PROTOCOL.__eq__)
        while True:
            if data := muxer.data_to_send():
                await link.send_all(data)
            if muxer.agreed is not None:
                return muxer.trailing()
            plaintext = bytes(await link.receive_some())
            self._count(len(plaintext))
            muxer.receive_data(plaintext)

    async def _receive(self) -> bytes | bytearray:
        data, self._early = self._early, None
        if data is None:
            data = await self._stream.receive_some(HANDSHAKE_READ_BYTES)
        self._count(len(data))
        return data

    def _count(self, size: int) -> None:
        if not size:
            raise trio.BrokenResourceError("the peer left during the handshake")
        self._received += size
        if self._received > MAX_HANDSHAKE_BYTES:
            raise LimitExceededError(
                f"a handshake of more than {MAX_HANDSHAKE_BYTES} bytes", limit="MAX_HANDSHAKE_BYTES"
            )

    async def _flush(self) -> None:
        """Send what the negotiation has to say, and TLS behind it."""
        negotiation = b"" if self._security is None else self._security.data_to_send()
        if data := negotiation + self._tls.data_to_send():
            await self._stream.send_all(data)

    async def _send_alert(self) -> None:
        """Tell the peer why, if it takes no more than a moment."""
        with trio.move_on_after(ALERT_TIMEOUT):
            try:
                await self._flush()
            except trio.BrokenResourceError:
                return
