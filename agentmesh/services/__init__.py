"""What agents call and serve over the mesh: HTTP clients on one side, ASGI applications and URLs on the other.

caller:     Calls -> MeshClient (httpx), MeshClient2 (httpx2) -> http://<peer ID>.peer.mesh/<type>/<name>/...
provider:   ServiceTable -> Dispatcher -> agentmesh.protocols.http.protocol
"""

from agentmesh.services.answers import Answer
from agentmesh.services.calls import Calls, GetCredential, OpenPeer
from agentmesh.services.client import MeshClient, MeshTransport
from agentmesh.services.client2 import MeshClient2, MeshTransport2
from agentmesh.services.dispatch import Authorize, Dispatcher
from agentmesh.services.lifespan import running
from agentmesh.services.names import canonical_url, host_name, peer_of_host
from agentmesh.services.probe import answers
from agentmesh.services.proxy import ReverseProxy
from agentmesh.services.table import SERVICE_TYPES, ServiceKey, ServiceTable, Target

__all__ = [
    "SERVICE_TYPES",
    "Answer",
    "Authorize",
    "Calls",
    "Dispatcher",
    "GetCredential",
    "MeshClient",
    "MeshClient2",
    "MeshTransport",
    "MeshTransport2",
    "OpenPeer",
    "ReverseProxy",
    "ServiceKey",
    "ServiceTable",
    "Target",
    "answers",
    "canonical_url",
    "host_name",
    "peer_of_host",
    "running",
]
