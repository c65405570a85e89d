"""The official MCP SDK over the mesh, as it comes: its streamable-HTTP server on one side, its client on the other."""

import functools
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio
from hypercorn.config import Config
from hypercorn.trio import serve  # pyright: ignore[reportUnknownVariableType]
from mcp import Client, ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import TextContent

from agentmesh.services import Dispatcher, MeshClient2, ServiceTable, Target, running
from tests.services.mesh import ALICE, BOB, Mesh, open_mesh

# httpx2 and the SDK leave their generators to the garbage collector, of which Trio warns.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


OpenTarget = Callable[[], AbstractAsyncContextManager[Target]]


def tool_server() -> MCPServer:
    server = MCPServer("arithmetic")

    @server.tool()
    def add(a: int, b: int) -> int:  # pyright: ignore[reportUnusedFunction]
        return a + b

    @server.tool()
    async def count(to: int, context: Context) -> str:  # pyright: ignore[reportUnusedFunction]
        for number in range(1, to + 1):
            await context.report_progress(number, to, f"at {number}")
        return f"counted to {to}"

    @server.tool()
    async def who(context: Context) -> str:  # pyright: ignore[reportUnusedFunction]
        assert context.headers is not None
        return context.headers["x-peer-id"]

    return server


@asynccontextmanager
async def in_process() -> AsyncGenerator[Target]:
    async with running(tool_server().streamable_http_app()) as app:
        yield app


@asynccontextmanager
async def behind_a_url() -> AsyncGenerator[Target]:
    """Under Hypercorn's Trio worker, a real server on loopback."""
    config = Config()
    config.bind = ["127.0.0.1:0"]
    finished = trio.Event()
    app = tool_server().streamable_http_app()
    async with trio.open_nursery() as nursery:
        started = functools.partial(serve, app, config, shutdown_trigger=finished.wait)  # type: ignore[arg-type]
        urls = await nursery.start(started)
        yield urls[0]
        finished.set()


@asynccontextmanager
async def open_session(mesh: Mesh) -> AsyncGenerator[ClientSession]:
    async with (
        MeshClient2(mesh.calls, timeout=30) as client,
        streamable_http_client(f"http://{BOB}.peer.mesh/mcp/tools/mcp", http_client=client) as (receive, send),
        ClientSession(receive, send) as session,
    ):
        await session.initialize()
        yield session


@pytest.mark.parametrize("open_target", [in_process, behind_a_url])
async def test_tools_are_called_over_the_mesh(open_target: OpenTarget) -> None:
    table = ServiceTable()
    heard: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with open_mesh(Dispatcher(table, lambda credential, peer, call: None)) as mesh, open_target() as target:
        table.register("mcp", "tools", target)
        async with open_session(mesh) as session:
            assert {tool.name for tool in (await session.list_tools()).tools} == {"add", "count", "who"}
            assert (await session.call_tool("add", {"a": 2, "b": 3})).structured_content == {"result": 5}
            result = await session.call_tool("count", {"to": 3}, progress_callback=note)
            assert [part.text for part in result.content if isinstance(part, TextContent)] == ["counted to 3"]
            assert heard == [(1, 3, "at 1"), (2, 3, "at 2"), (3, 3, "at 3")]
            # who calls is the peer that the session proved, wherever the tool runs
            assert (await session.call_tool("who", {})).structured_content == {"result": str(ALICE)}
        await mesh.check_idle()


async def test_the_sdks_newer_client_discovers_and_calls() -> None:
    """Its first request is server/discover, whose answer the SDK's server gives and then cancels itself."""
    table = ServiceTable()
    async with open_mesh(Dispatcher(table, lambda credential, peer, call: None)) as mesh, in_process() as target:
        table.register("mcp", "tools", target)
        url = f"http://{BOB}.peer.mesh/mcp/tools/mcp"
        async with (
            MeshClient2(mesh.calls, timeout=30) as http,
            Client(streamable_http_client(url, http_client=http)) as mcp,
        ):
            assert (await mcp.call_tool("add", {"a": 2, "b": 3})).structured_content == {"result": 5}
        await mesh.check_idle()
