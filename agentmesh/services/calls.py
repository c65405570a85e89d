"""A caller's side of HTTP over the mesh: a stream per request, and the answers that the mesh gives itself."""

import base64
import math
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from typing import Any

import attrs
import httpcore2
import trio

from agentmesh.abc import Stream
from agentmesh.errors import (
    DialError,
    ErrorCode,
    NotConnectedError,
    RejectedError,
    RemoteProtocolError,
    SessionClosedError,
)
from agentmesh.protocols.http import CREDENTIAL_HEADER
from agentmesh.services.answers import Answer
from agentmesh.services.names import canonical_url, peer_of_host
from agentmesh.services.seam import Incoming, SeamStream, exchange
from agentmesh.types import PeerId

OpenPeer = Callable[[PeerId], Awaitable[Stream]]
GetCredential = Callable[[], bytes]

# What may be raised in the place of an answer; `answer_for` says it to whoever asked.
FAILURES = (RejectedError, DialError, SessionClosedError, RemoteProtocolError)

# One exchange per stream: what a request says of its connection is not the application's to say.
_NOT_SENT = frozenset({b"connection", b"keep-alive", b"proxy-connection", CREDENTIAL_HEADER})


@attrs.frozen
class Outgoing:
    """A request as the client libraries hand it over."""

    method: str
    scheme: str
    host: str
    port: int | None
    target: bytes
    headers: Iterable[tuple[bytes, bytes]]
    content: AsyncIterable[bytes]
    extensions: Mapping[str, Any]


@attrs.frozen
class Calls:
    """How this member calls others.

    Args:
        open_peer: opens a `/libp2p-http` stream to a peer. May raise NotConnectedError (the caller sees 503), any other
            DialError, SessionClosedError or RemoteProtocolError (502), or RejectedError (503).
        credential: the Biscuit that goes with each request, asked for each time. May raise NotConnectedError (503).
    """

    open_peer: OpenPeer
    credential: GetCredential = attrs.field(repr=False)

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
        if request.scheme != "http":
            raise httpcore2.UnsupportedProtocol(f"{request.scheme}: over the mesh it is http; the mesh itself encrypts")
        peer = peer_of_host(request.host)
        try:
            credential = self.header()
            stream = await self._open(peer, request.extensions.get("timeout", {}).get("connect"))
            received = await exchange(stream, _on_the_wire(request, credential))
        except FAILURES as exc:
            answer = answer_for(peer, exc)
        else:
            return attrs.evolve(received, headers=[_readable(*header) for header in received.headers])
        return Incoming(answer.status, answer.headers, {}, httpcore2.Response(answer.status, content=answer.body), None)

    def header(self) -> bytes:
        """The value of X-Mesh-Biscuit. Raises NotConnectedError."""
        return base64.b64encode(self.credential())

    async def _open(self, peer: PeerId, seconds: float | None) -> SeamStream:
        try:
            with trio.fail_after(math.inf if seconds is None else seconds):
                stream = await self.open_peer(peer)
        except trio.TooSlowError as exc:
            raise httpcore2.ConnectTimeout(f"no stream to {peer} within {seconds} s") from exc
        return SeamStream(stream, stream.reset)


def answer_for(peer: PeerId, error: Exception) -> Answer:
    """What a caller is told when `peer` could not be called.

    Args:
        error: one of FAILURES.
    """
    match error:
        case NotConnectedError():
            return Answer(503, "not-connected", f"not connected to the mesh, so {peer} cannot be called: {error}")
        case RejectedError():
            return _refusal(peer, error)
        case _:
            return Answer(502, "unreachable", f"{peer} cannot be reached: {error}")


def _on_the_wire(request: Outgoing, credential: bytes) -> httpcore2.Request:
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
