"""A node: an agent's place in the mesh. It holds sessions to routers, serves services and calls those of others.

config       every setting
catalogue    which routers there are, and how this node stands to each (pure)
attachments  holding routers: dial, admission, reservation
paths        how to reach another member
node         the composition

async with open_node(control_plane="http://10.0.0.1:8080", token="mesh-bt-…") as node:
    async with node.serve("mcp", "weather", app), node.http_client() as client:
        answer = await client.get(f"http://{peer}.peer.mesh/http/files/report.pdf")
"""

from agentmesh.node.compose import open_node, run_node, run_node_as
from agentmesh.node.config import NodeConfig
from agentmesh.node.node import Node

__all__ = ["Node", "NodeConfig", "open_node", "run_node", "run_node_as"]
