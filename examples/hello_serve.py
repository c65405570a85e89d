"""Serve a greeting to the mesh.

agentmesh one &                                   # a mesh; writes mesh/join-token
python examples/hello_serve.py http://127.0.0.1:8080 mesh/join-token
"""

import sys
from pathlib import Path

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from agentmesh.node import open_node


async def greet(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"Hello {request.headers['x-peer-id']}, proved by your key.\n")


async def main(control_plane: str, token: str) -> None:
    app = Starlette(routes=[Route("/", greet)])
    async with open_node(control_plane, token) as node, node.serve("http", "hello", app):
        print(f"http://{node.peer}.peer.mesh/http/hello/", flush=True)
        await trio.sleep_forever()


if __name__ == "__main__":
    control_plane, token_file, *rest = sys.argv[1:]
    trio.run(main, control_plane, Path(token_file).read_text().strip(), *rest)
