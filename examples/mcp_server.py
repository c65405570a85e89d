"""Serve MCP tools to the mesh: the official SDK's server, unchanged. Needs agentmesh[mcp].

agentmesh one                                                             # in a terminal of its own
python examples/mcp_server.py http://127.0.0.1:8080 mesh/join-token       # prints the URL that it serves
"""

import sys
from pathlib import Path

import trio
from mcp.server.mcpserver import MCPServer

import agentmesh

server = MCPServer("calculator", log_level="WARNING")


@server.tool()
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


async def main(control_plane: str, token: str) -> None:
    app = server.streamable_http_app()
    async with agentmesh.open_node(control_plane, token) as node, node.serve("mcp", "calculator", app):
        print(f"http://{node.peer}.peer.mesh/mcp/calculator/mcp", flush=True)
        await trio.sleep_forever()


if __name__ == "__main__":
    try:
        trio.run(main, sys.argv[1], Path(sys.argv[2]).read_text().strip())
    except* KeyboardInterrupt:
        pass
