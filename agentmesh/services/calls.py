"""A caller's side of HTTP over the mesh: a stream per request, and the answers that the mesh gives itself."""

import base64
import math
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from typing import Any
from typing import Protocol as Interface

import attrs
import httpcore2
import trio

from agentmesh.abc import Stream
from agentmesh.errors import (
    CredentialError,
    DialError,
    ErrorCode,
    NotConnectedError,
    RejectedError,
    RemoteProtocolError,
    SessionClosedError,
)
from agentmesh.protocols.http import CREDENTIAL_HEADER
from agentmesh.services.answers import Answer
from agentmesh.services.labels import LABELS_HEADER, Labels, required_labels
from agentmesh.services.names import canonical_url, peer_of_host
from agentmesh.services.seam import Incoming, SeamStream, exchange
from agentmesh.types import PeerId

OpenPeer = Callable[[PeerId], Awaitable[Stream]]
GetCredential = Callable[[], bytes]


class Attest(Interface):
    """Sees to it that a peer has the labels that are required of it."""

    async def __call__(self, peer: PeerId, any_of: Labels, all_of: Labels = ()) -> None:
        """Raises CredentialError when it has none of `any_of`, where there are any, or not all of `all_of`; or what
        opening a stream to it may, when it cannot be asked.
        """
        ...


# What may be raised in the place of an answer; `answer_for` says it to whoever asked.
FAILURES = (CredentialError, RejectedError, DialError, SessionClosedError, RemoteProtocolError)

# One exchange per stream: what a request says of its connection is not the application's to say.
_NOT_SENT = frozenset({b"connection", b"keep-alive", b"proxy-connection", CREDENTIAL_HEADER, LABELS_HEADER})


@attrs.frozen
class Outgoing:
    """A request as the client libraries hand it over.

    Attributes:
        is_repeatable: whether `content` can be read more than once.
    """

    method: str
    scheme: str
    host: str
    port: int | None
    target: bytes
    headers: Iterable[tuple[bytes, bytes]]
    content: AsyncIterable[bytes]
    extensions: Mapping[str, Any]
    is_repeatable: bool = False


class Sends(Interface):
    """Whoever carries requests: `Calls`, or `NamedCalls`."""

    async def send(self, request: Outgoing) -> Incoming: ...


async def attest_nothing(peer: PeerId, any_of: Labels, all_of: Labels = ()) -> None:
    """Nothing is known of anybody's labels: a call that requires some goes nowhere. Raises CredentialError."""
    await trio.lowlevel.checkpoint()
    if any_of or all_of:
        raise CredentialError("nobody's labels are known here", "unattested")


@attrs.frozen
class Calls:
    """How this member calls others.

    Args:
        open_peer: opens a `/libp2p-http` stream to a peer. May raise NotConnectedError (the caller sees 503), any other
            DialError, SessionClosedError or RemoteProtocolError (502), or RejectedError (503).
        credential: the Biscuit that goes with each request, asked for each time. May raise NotConnectedError (503).
        attest: sees to it that a peer has the labels that a call requires, before anything is sent to it. May raise
            CredentialError (403), or what `open_peer` may.
    """

    open_peer: OpenPeer
    credential: GetCredential = attrs.field(repr=False)
    attest: Attest = attest_nothing

    async def send(self, request: Outgoing) -> Incoming:
        """Send `request` on a stream of its own.

        Returns:
            The answer: the provider's, or the mesh's own when the provider cannot be reached or refuses the stream.
        Raises:
            AddressError: the host names no peer.
            httpcore2.UnsupportedProtocol: the scheme is not http; the mesh encrypts below it.
            httpcore2.ConnectTimeout, ReadTimeout, WriteTimeout: by the request's "timeout" extension.
            httpcore2.ReadError, WriteError, LocalProtocolError, RemoteProtocolError: the exchange broke.
        Cancellation: safe; the stream is cut, and the provider learns of it at once.
        """
        check_scheme(request)
        peer = peer_of_host(request.host)
        try:
            labels = required_labels(request.headers)
        except ValueError as exc:
            return said(Answer(400, "malformed", str(exc)))
        try:
            return await self.send_to(peer, request, labels)
        except FAILURES as exc:
            return said(answer_for(peer, exc))

    async def send_to(self, peer: PeerId, request: Outgoing, labels: Labels) -> Incoming:
        """The same, of a peer that was chosen already, with FAILURES raised where `send` answers them.

        Args:
            labels: of which the peer is to have one, if there are any.
        """
        credential = self.header()
        stream = await self._open(peer, labels, request.extensions.get("timeout", {}).get("connect"))
        received = await exchange(stream, on_the_wire(request, credential))
        return attrs.evolve(received, headers=[_readable(*header) for header in received.headers])

    def header(self) -> bytes:
        """The value of X-Mesh-Biscuit. Raises NotConnectedError."""
        return base64.b64encode(self.credential())

    async def _open(self, peer: PeerId, labels: Labels, seconds: float | None) -> SeamStream:
        try:
            with trio.fail_after(math.inf if seconds is None else seconds):
                await self.attest(peer, labels)
                stream = await self.open_peer(peer)
        except trio.TooSlowError as exc:
            raise httpcore2.ConnectTimeout(f"no stream to {peer} within {seconds} s") from exc
        return SeamStream(stream, stream.reset)


def check_scheme(request: Outgoing) -> None:
    if request.scheme != "http":
        raise httpcore2.UnsupportedProtocol(f"{request.scheme}: over the mesh it is http; the mesh itself encrypts")


def said(answer: Answer) -> Incoming:
    """An answer that is made here, as if it had come."""
    return Incoming(answer.status, answer.headers, {}, httpcore2.Response(answer.status, content=answer.body), None)


def answer_for(peer: PeerId, error: Exception) -> Answer:
    """What a caller is told when `peer` could not be called.

    Args:
        error: one of FAILURES.
    """
    match error:
        case CredentialError():
            return Answer(403, "unattested", f"{peer} is not called: {error}")
        case NotConnectedError():
            return Answer(503, "not-connected", f"not connected to the mesh, so {peer} cannot be called: {error}")
        case RejectedError():
            return _refusal(peer, error)
        case _:
            return Answer(502, "unreachable", f"{peer} cannot be reached: {error}")


def on_the_wire(request: Outgoing, credential: bytes) -> httpcore2.Request:
    headers = [(name, value) for name, value in request.headers if name.lower() not in _NOT_SENT]
    headers += [(b"X-Mesh-Biscuit", credential), (b"Connection", b"close")]
    url = httpcore2.URL(scheme=request.scheme, host=request.host, port=request.port, target=request.target)
    return httpcore2.Request(
        request.method, url, headers=headers, content=request.content, extensions=dict(request.extensions)
    )


def _readable(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """A redirect to a base58 host would be lost when the client parses it."""
    if name.lower() != b"location":
        return name, value
    return name, canonical_url(value.decode("latin-1")).encode("latin-1")


def _refusal(peer: PeerId, error: RejectedError) -> Answer:
    """What a caller is told when the stream itself was refused, before HTTP."""
    match error.code:
        case ErrorCode.GATED:
            return Answer(403, "denied", f"{peer} does not admit us: {error}")
        case ErrorCode.PROTOCOL_NEGOTIATION_FAILED:
            return Answer(502, "unreachable", f"{peer} serves nothing over HTTP: {error}")
        case _:
            return Answer(503, "refused", f"{peer} takes no call now: {error}")
