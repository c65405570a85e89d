"""A private network for AI agents: authenticated sessions to routers, end-to-end encrypted circuits between members.

    import agentmesh

    async with agentmesh.open_node("http://10.0.0.1:8080", token) as node, node.http_client() as client:
        answer = await client.get(f"http://{peer}.peer.mesh/http/hello/")

The rest is imported by its own name: `agentmesh.runtime` for hosts and protocols, `agentmesh.testing` for tests.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from agentmesh.node import Node, NodeConfig, open_node, run_node

__all__ = ["Node", "NodeConfig", "open_node", "run_node"]


def __getattr__(name: str) -> object:
    """Load the node when it is asked for: whoever imports a lower layer does not pay for the whole house."""
    if name in __all__:
        return getattr(importlib.import_module("agentmesh.node"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
