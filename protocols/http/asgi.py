"""ASGI 3: its types, and the scope of a request that came over the mesh."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast
from urllib.parse import unquote

import trio

from agentmesh.protocols.http.events import RequestReceived
from agentmesh.protocols.http.wire import PEER_HEADER
from agentmesh.types import PeerId

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

EXTENSION = "agentmesh"

# What ASGI has no words for. `TRAILERS` is a key of the last http.request, with the trailers of the request if it has
# some; a message of the type `INFORMATIONAL`, with a status and headers, is a 1xx before the answer.
TRAILERS = "agentmesh.trailers"
INFORMATIONAL = "agentmesh.response.informational"


def scope_of(request: RequestReceived, peer: PeerId, wait_left: Callable[[], Awaitable[None]]) -> Scope:
    """The ASGI scope of `request`, called by `peer`. Whatever the caller said of its own peer ID is replaced.

    Args:
        wait_left: waits until the caller is gone, beside whatever the application does.
    """
    headers = [(name, value) for name, value in request.headers if name != PEER_HEADER]
    headers.append((PEER_HEADER, str(peer).encode()))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": request.http_version,
        "method": request.method,
        "scheme": "http",
        "path": unquote(request.path.decode("ascii")),
        "raw_path": request.path,
        "query_string": request.query,
        "root_path": "",
        "headers": headers,
        "client": (str(peer), 0),
        "server": None,
        "extensions": {
            EXTENSION: {"peer": peer, "wait_left": wait_left},
            "http.response.trailers": {},
            INFORMATIONAL: {},
        },
    }


def peer_of(scope: Scope) -> PeerId:
    """Who called, as its session proved it. KeyError when the request did not come over the mesh."""
    return cast(PeerId, scope["extensions"][EXTENSION]["peer"])


def wait_left_of(scope: Scope) -> Callable[[], Awaitable[None]]:
    """Waits until the caller of a request is gone, also while nobody reads its body; for ever for one that did not come
    over the mesh.
    """
    ours = scope.get("extensions", {}).get(EXTENSION, {})
    return cast("Callable[[], Awaitable[None]]", ours.get("wait_left", trio.sleep_forever))
