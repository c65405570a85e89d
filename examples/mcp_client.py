"""Call an MCP tool over the mesh: the official SDK's client, given the mesh's HTTP client. Needs agentmesh[mcp].

python examples/mcp_client.py http://127.0.0.1:8080 mesh/join-token http://12D3….peer.mesh/mcp/calculator/mcp
"""

import sys
from pathlib import Path

import trio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

import agentmesh


async def main(control_plane: str, token: str, url: str) -> None:
    async with (
        agentmesh.open_node(control_plane, token) as node,
        node.http_client2() as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        result = await client.call_tool("add", {"a": 19, "b": 23})
        for part in result.content:
            if isinstance(part, TextContent):
                print(f"19 + 23 = {part.text}")


if __name__ == "__main__":
    trio.run(main, sys.argv[1], Path(sys.argv[2]).read_text().strip(), sys.argv[3])
