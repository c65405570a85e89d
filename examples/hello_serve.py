"""Serve a greeting to the mesh.

agentmesh one                                                             # in a terminal of its own
python examples/hello_serve.py http://127.0.0.1:8080 mesh/join-token      # prints the URL that it serves
"""

import sys
from pathlib import Path

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import agentmesh


async def greet(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"Hello {request.headers['x-peer-id']}, proved by your key.\n")


async def main(control_plane: str, token: str) -> None:
    app = Starlette(routes=[Route("/", greet)])
    async with agentmesh.open_node(control_plane, token) as node, node.serve("http", "hello", app):
        print(f"http://{node.peer}.peer.mesh/http/hello/", flush=True)
        await trio.sleep_forever()


if __name__ == "__main__":
    try:
        trio.run(main, sys.argv[1], Path(sys.argv[2]).read_text().strip())
    except* KeyboardInterrupt:
        pass
