"""Call a service of the mesh.

python examples/hello_call.py http://127.0.0.1:8080 mesh/join-token http://12D3….peer.mesh/http/hello/
"""

import sys
from pathlib import Path

import trio

from agentmesh.node import open_node


async def main(control_plane: str, token: str, url: str) -> None:
    async with open_node(control_plane, token) as node, node.http_client() as client:
        response = await client.get(url)
        response.raise_for_status()
        print(response.text, end="")


if __name__ == "__main__":
    control_plane, token_file, *rest = sys.argv[1:]
    trio.run(main, control_plane, Path(token_file).read_text().strip(), *rest)
