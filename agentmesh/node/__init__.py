"""A node: an agent's place in the mesh. It holds sessions to routers, serves services and calls those of others.

Two agents, each in a program of its own as a rule:

    import trio
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    from agentmesh.node import open_node


    async def today(request):
        return PlainTextResponse(f"sunny, {request.headers['x-peer-id']}")


    async def main(control_plane, token):
        app = Starlette(routes=[Route("/today", today)])
        async with (
            open_node(control_plane, token) as provider,
            provider.serve("http", "weather", app),
            open_node(control_plane, token) as agent,
            agent.http_client(timeout=10) as client,
        ):
            answer = await client.get(f"http://{provider.peer}.peer.mesh/http/weather/today")
            print(answer.status_code, answer.text)

`open_node` enrolls (or resumes, with `state_dir`), attaches to routers and gives a `Node`, which is up until its block
ends. What it serves is an ASGI application or the URL of a server; `http_client` is an `httpx.AsyncClient`,
`http_client2` the same for httpx2, `open_tunnel` leads to a port that an agent of many connections reaches, and
`open_stream` speaks any other protocol. A call that the mesh cannot carry is an answer with an X-Mesh-Error header: 502
the peer cannot be reached, 503 this node holds no router, 403 the peer does not take our credential, 404 it has no such
service. A node that loses its routers goes on and finds others; one whose credential ends and is not renewed raises
CredentialError, in an ExceptionGroup, out of its block.

`run_node` takes a `NodeConfig` with every setting, and transports. Below:

compose      the composition
config       every setting
node         what the application holds
selection    which routers a node would have (pure)
catalogue    which routers there are, and how this node stands to each (pure)
admissions   at which routers it is admitted
goaways      being sent away by a router
announcer    what the directory is told
discovery    who serves something, one after the other
attachments  holding routers: dial, reservation, replacement
pages        what an operator sees of it
paths        how to reach another member
tunnels      how to reach a target beside an agent
reachability … and whether it is reached without a router
"""

from agentmesh.node.compose import open_node, run_node, run_node_as
from agentmesh.node.config import NodeConfig
from agentmesh.node.node import Node
from agentmesh.node.reachability import Reachability
from agentmesh.node.tunnels import TunnelError, TunnelTarget

__all__ = [
    "Node",
    "NodeConfig",
    "Reachability",
    "TunnelError",
    "TunnelTarget",
    "open_node",
    "run_node",
    "run_node_as",
]
