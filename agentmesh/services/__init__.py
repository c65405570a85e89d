"""What agents call and serve over the mesh: HTTP clients on one side, ASGI applications and URLs on the other.

caller:     Calls -> MeshClient (httpx), MeshClient2 (httpx2) -> http://<peer ID>.peer.mesh/<type>/<name>/...
            NamedCalls -> the same, and http://<name>.<type>.mesh/...
provider:   ServiceTable -> Dispatcher -> agentmesh.protocols.http.protocol
"""

from agentmesh.services.answers import Answer
from agentmesh.services.by_name import NamedCalls
from agentmesh.services.calls import Attest, Calls, GetCredential, OpenPeer, Sends
from agentmesh.services.client import MeshClient, MeshTransport
from agentmesh.services.client2 import MeshClient2, MeshTransport2
from agentmesh.services.dispatch import Authorize, Dispatcher
from agentmesh.services.lifespan import running
from agentmesh.services.names import canonical_url, host_name, peer_of_host, service_of_host
from agentmesh.services.probe import answers
from agentmesh.services.providers import Providers
from agentmesh.services.proxy import ReverseProxy
from agentmesh.services.table import SERVICE_TYPES, ServiceKey, ServiceTable, Target

__all__ = [
    "SERVICE_TYPES",
    "Answer",
    "Attest",
    "Authorize",
    "Calls",
    "Dispatcher",
    "GetCredential",
    "MeshClient",
    "MeshClient2",
    "MeshTransport",
    "MeshTransport2",
    "NamedCalls",
    "OpenPeer",
    "Providers",
    "ReverseProxy",
    "Sends",
    "ServiceKey",
    "ServiceTable",
    "Target",
    "answers",
    "canonical_url",
    "host_name",
    "peer_of_host",
    "running",
    "service_of_host",
]
