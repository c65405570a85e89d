"""HTTP over the mesh, `/libp2p-http`: one HTTP/1.1 exchange per stream.

    caller                                   provider
      | GET /<type>/<name>/... HTTP/1.1 ------>|
      | body, as long as it likes ------------>|
      |<---------------- 200 OK, body          |
      |<---------------- end of stream         |

The caller may end its side once its request is whole; leaving early is a reset. An answer that cannot be finished ends
in a reset too, so a cut answer never looks like a short one. A request that is no HTTP is answered 400 and costs its
stream. This package is the provider's side: it serves any ASGI 3 application, which sees the caller's proved peer ID as
`client`, in `X-Peer-Id` and in `scope["extensions"]["agentmesh"]["peer"]`. The caller's side is `agentmesh.services`.
"""

from agentmesh.protocols.http.asgi import (
    INFORMATIONAL,
    TRAILERS,
    ASGIApp,
    Message,
    Receive,
    Scope,
    Send,
    peer_of,
    wait_left_of,
)
from agentmesh.protocols.http.driver import CallerLeftError, protocol, serve_http
from agentmesh.protocols.http.wire import (
    CREDENTIAL_HEADER,
    ERROR_HEADER,
    HTTP_ID,
    MESH_HEADERS,
    PEER_HEADER,
    HttpLimits,
)

__all__ = [
    "CREDENTIAL_HEADER",
    "ERROR_HEADER",
    "HTTP_ID",
    "INFORMATIONAL",
    "MESH_HEADERS",
    "PEER_HEADER",
    "TRAILERS",
    "ASGIApp",
    "CallerLeftError",
    "HttpLimits",
    "Message",
    "Receive",
    "Scope",
    "Send",
    "peer_of",
    "protocol",
    "serve_http",
    "wait_left_of",
]
