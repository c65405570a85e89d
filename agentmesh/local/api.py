"""The application that programs of this machine talk to, and where it listens."""

import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from agentmesh.control_plane.bind_address import parse_bind_address
from agentmesh.local.discover import PATH as DISCOVER_PATH
from agentmesh.local.discover import DiscoverPage
from agentmesh.local.listening import listen_on_port, listen_on_socket
from agentmesh.local.mcp import McpEndpoint
from agentmesh.local.measured import Measured
from agentmesh.local.models import Models
from agentmesh.local.openai import Completions, ModelsPage
from agentmesh.local.providers import MeshDiscovery
from agentmesh.local.proxy import PREFIX, MeshProxy
from agentmesh.local.serving import serve_local
from agentmesh.local.tools import NodeTools
from agentmesh.membership.guard import Guarded, load_or_create_token
from agentmesh.node import Node
from agentmesh.node.pages import node_pages
from agentmesh.protocols.http import ASGIApp, Receive, Scope, Send

logger = logging.getLogger(__name__)


@attrs.frozen
class LocalConfig:
    """Where the local API is; nowhere by default.

    Attributes:
        socket_path: of a Unix socket, for its owner; whoever can open it needs no token.
        bind_address: host:port, for whoever has the token.
        token_path: the file with the token; made when it is not there.
    """

    socket_path: Path | None = None
    bind_address: str | None = None
    token_path: Path | None = None

    def __attrs_post_init__(self) -> None:
        if self.bind_address is not None and self.token_path is None:
            raise ValueError("a port needs a token: say where it is")


class LocalApi:
    """The ASGI application of one node. What is not listed in its routes is `node_pages`: metrics, debugging.

    Args:
        node: whose it is.
        socket_path: where its socket is, if there is one.
    """

    def __init__(self, node: Node, socket_path: Path | None = None) -> None:
        self._proxy = MeshProxy(node.calls.calls, node.peer)
        discovery = MeshDiscovery(node)
        models = Models(node, discovery)
        completions = Completions(models, node, self._proxy)
        routes = [
            Route(DISCOVER_PATH, DiscoverPage(discovery)),
            Route("/mcp", McpEndpoint(NodeTools(node, discovery).tools)),
            Route("/v1/models", ModelsPage(models, node)),
            Route("/v1/chat/completions", completions),
            Route("/v1/completions", completions),
            Mount("/", node_pages(node, debug=True, socket_path=socket_path)),
        ]
        self._pages = Starlette(routes=routes)
        self._measured = Measured(self._answer, node.figures)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._measured(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: bytes = scope["raw_path"]
        to_member = path.startswith(PREFIX) and path != DISCOVER_PATH.encode()
        app: ASGIApp = self._proxy if to_member else self._pages
        await app(scope, receive, send)


@asynccontextmanager
async def serve_local_api(node: Node, config: LocalConfig) -> AsyncGenerator[str | None]:
    """Serve a node's local API for as long as the block lasts; nothing when the settings say nowhere.

    Yields:
        The URL of the port, if there is one.
    Raises:
        OSError: a socket or port that is taken, too long a path, or the token's file.
        StateError: the token's file has none, or others may read it.
    """
    app, url = LocalApi(node, config.socket_path), None
    async with AsyncExitStack() as stack:
        if config.socket_path is not None:
            listener = stack.enter_context(listen_on_socket(config.socket_path))
            await stack.enter_async_context(serve_local(app, node.peer, [listener]))
            logger.info("local API", extra={"socket": config.socket_path})
        if config.bind_address is not None and config.token_path is not None:
            guarded = Guarded(app, load_or_create_token(config.token_path))
            listeners = await listen_on_port(*parse_bind_address(config.bind_address))
            await stack.enter_async_context(serve_local(guarded, node.peer, listeners))
            host, port = listeners[0].socket.getsockname()[:2]
            url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            logger.info("local API", extra={"url": url, "token_path": config.token_path})
        yield url
