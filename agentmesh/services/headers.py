"""Which headers pass from one side of the mesh to the other (RFC 9110, section 7.6.1)."""

from collections.abc import Iterable

from agentmesh.protocols.http import MESH_HEADERS

Headers = list[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

# What a server behind us would believe of us, and we do not know: where a request came from before the mesh.
FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip"})


def without_mesh(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Neither credentials for services, nor X-Mesh-Error from them."""
    return [(name, value) for name, value in headers if not name.lower().startswith(MESH_HEADERS)]


def end_to_end(headers: Iterable[tuple[bytes, bytes]], *, but: frozenset[bytes] = frozenset()) -> Headers:
    """What a proxy passes on, in order and with repeats: none that is hop-by-hop, or the mesh's, or in `but`."""
    return without_mesh(without_hops(headers, but=but))


def without_hops(headers: Iterable[tuple[bytes, bytes]], *, but: frozenset[bytes] = frozenset()) -> Headers:
    """The same with the mesh's: within it."""
    passed = [(name, value) for name, value in headers]
    named = {
        token.strip().lower() for name, value in passed if name.lower() == b"connection" for token in value.split(b",")
    }
    dropped = HOP_BY_HOP | named | but
    return [(name, value) for name, value in passed if name.lower() not in dropped]


def relocated(headers: Iterable[tuple[bytes, bytes]], origin: bytes, base: bytes, prefix: bytes) -> Headers:
    """Make redirects within a service lead through the mesh again.

    Args:
        headers: of an answer.
        origin: scheme and authority under which the service answered, `http://127.0.0.1:8000`.
        base: the path below which it lives there, without a slash at its end.
        prefix: the path below which the mesh serves it, `/mcp/weather`.
    """
    return [
        (name, _relocated(value, origin, base, prefix) if name.lower() == b"location" else value)
        for name, value in headers
    ]


def _relocated(location: bytes, origin: bytes, base: bytes, prefix: bytes) -> bytes:
    path = location.removeprefix(origin) or b"/"
    if not path.startswith(b"/") or path.startswith(b"//"):
        return location  # relative to the request, or to another host
    rest = path.removeprefix(base)
    inside = path.startswith(base) and rest[:1] in (b"", b"/", b"?", b"#")
    return prefix + rest if inside else location
