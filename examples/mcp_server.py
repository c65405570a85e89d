"""Serve MCP tools to the mesh: the official SDK's server, unchanged.

python examples/mcp_server.py http://127.0.0.1:8080 mesh/join-token
"""

import sys
from pathlib import Path

import trio
from mcp.server.mcpserver import MCPServer

from agentmesh.node import open_node

server = MCPServer("calculator")


@server.tool()
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


async def main(control_plane: str, token: str) -> None:
    async with open_node(control_plane, token) as node, node.serve("mcp", "calculator", server.streamable_http_app()):
        print(f"http://{node.peer}.peer.mesh/mcp/calculator/mcp", flush=True)
        await trio.sleep_forever()


if __name__ == "__main__":
    control_plane, token_file, *rest = sys.argv[1:]
    trio.run(main, control_plane, Path(token_file).read_text().strip(), *rest)
