"""Call a service of the mesh: `hello_serve.py` prints the URL.

python examples/hello_call.py http://127.0.0.1:8080 mesh/join-token http://12D3….peer.mesh/http/hello/
"""

import sys
from pathlib import Path

import trio

import agentmesh


async def main(control_plane: str, token: str, url: str) -> None:
    async with agentmesh.open_node(control_plane, token) as node, node.http_client() as client:
        response = await client.get(url)
        response.raise_for_status()
        print(response.text, end="")


if __name__ == "__main__":
    trio.run(main, sys.argv[1], Path(sys.argv[2]).read_text().strip(), sys.argv[3])
