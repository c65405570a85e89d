"""Names, bounds and the request line of HTTP over the mesh (RFC 9112; libp2p specification "http")."""

import re

import attrs

from agentmesh.errors import RemoteProtocolError
from agentmesh.types import ProtocolId

HTTP_ID = ProtocolId("/libp2p-http")

PEER_HEADER = b"x-peer-id"  # set by the provider: who calls, as the session proved it
CREDENTIAL_HEADER = b"x-mesh-biscuit"  # set by the caller, base64; never reaches a service
ERROR_HEADER = b"x-mesh-error"  # on answers that the mesh gives itself: why, in one word
MESH_HEADERS = b"x-mesh-"  # every header of this prefix is the mesh's, on requests and answers

ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/?]*(?P<rest>.*)", re.DOTALL)


@attrs.frozen
class HttpLimits:
    """Bounds of one exchange."""

    max_head_bytes: int = 64 * 1024
    """Request line and headers together; more is answered 431."""
    max_headers: int = 256
    """More is answered 431."""
    head_timeout: float = 10.0
    """Seconds until the whole head must be there; later is answered 408."""
    max_unread_bytes: int = 64 * 1024
    """How much of a body is read before the application asks for it."""
    leave_timeout: float = 30.0
    """Seconds an application may go on unfinished after its caller left; then it is cancelled."""
    max_drain_bytes: int = 256 * 1024
    """What is read and dropped of a request that was answered before it was whole."""
    drain_timeout: float = 2.0
    """Seconds that may take."""


DEFAULT_LIMITS = HttpLimits()


def split_target(method: str, target: bytes) -> tuple[bytes, bytes]:
    """Path and query of a request target, bytes as they were sent.

    Takes the origin form (/a?b), the absolute form (http://host/a?b, whose authority is dropped) and `*` for OPTIONS.

    Raises:
        RemoteProtocolError: another form, or none.
    """
    if absolute := ABSOLUTE.fullmatch(target):
        target = b"/" + absolute["rest"].removeprefix(b"/")
    if not target.startswith(b"/") and not (method == "OPTIONS" and target == b"*"):
        raise RemoteProtocolError("the request target is no path")
    path, _, query = target.partition(b"?")
    return path, query


def head_size(target: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> int:
    """Bytes of a request's head, to the accuracy that a bound needs."""
    return len(target) + sum(len(name) + len(value) + 4 for name, value in headers)
