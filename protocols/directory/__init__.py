"""The directory, `/mesh/directory/1.0.0`: who serves what, and where a peer is. Routers keep it, members ask.

    member or router               router
      | DirectoryRequest -------->   |  provide: keep, and place on the routers closest to the key
      |                              |  find_providers, find_peer: own records, and the closest routers, at once
      | <-------- DirectoryResponse  |

A member announces only itself, at addresses that are its own; only a router may place a record of somebody else. A
record is good for fifteen minutes and gives way to newer ones only. What a router asks another is answered from that
one's own records, so a request goes over one router and no further. `driver` is the router's side, `client` the other.
"""

from agentmesh.protocols.directory.client import DirectoryClient, ask
from agentmesh.protocols.directory.driver import Directory, DirectoryConfig
from agentmesh.protocols.directory.events import (
    DEFAULT_LIMIT,
    RECORD_TTL,
    Announcement,
    Answer,
    FindPeer,
    FindProviders,
    Found,
    Provide,
    Status,
)
from agentmesh.protocols.directory.figures import DirectoryStatistics, Operation, Placement, Result
from agentmesh.protocols.directory.keys import peer_key, service_key
from agentmesh.protocols.directory.neighbours import Federation
from agentmesh.protocols.directory.store import StoreLimits
from agentmesh.protocols.directory.wire import DIRECTORY_ID

__all__ = [
    "DEFAULT_LIMIT",
    "DIRECTORY_ID",
    "RECORD_TTL",
    "Announcement",
    "Answer",
    "Directory",
    "DirectoryClient",
    "DirectoryConfig",
    "DirectoryStatistics",
    "Federation",
    "FindPeer",
    "FindProviders",
    "Found",
    "Operation",
    "Placement",
    "Provide",
    "Result",
    "Status",
    "StoreLimits",
    "ask",
    "peer_key",
    "service_key",
]
