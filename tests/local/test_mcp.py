"""The node as an MCP server, for the official client; and MCP servers of other members, reached through it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest
import trio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer

from agentmesh.local import LocalConfig, serve_local_api
from agentmesh.node import Node
from tests.node.loopback import open_loopback

# httpx2 and the SDK leave their generators to the garbage collector, of which Trio warns.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

TOOLS = {
    *("get_mesh_info", "list_local_services", "discover_remote_services"),
    *("find_remote_tools", "describe_remote_tool", "call_remote_tool"),
}


def calculator() -> MCPServer:
    server = MCPServer("calculator")

    @server.tool()
    def add(a: int, b: int) -> int:  # pyright: ignore[reportUnusedFunction]
        """The sum."""
        return a + b

    return server


@attrs.frozen
class Agent:
    caller: Node
    provider: Node
    http: httpx2.AsyncClient

    async def call(self, client: Client, tool: str, **arguments: Any) -> Any:
        result = await client.call_tool(tool, arguments)
        return result.structured_content


@asynccontextmanager
async def open_agent(folder: Path) -> AsyncGenerator[Agent]:
    async with (
        open_loopback(folder, "router") as mesh,
        await mesh.node(labels={"site": "a"}) as provider,
        await mesh.node() as caller,
        provider.serve("mcp", "calculator", calculator().streamable_http_app()),
        provider.serve("mcp", "broken", "http://127.0.0.1:9"),
        serve_local_api(caller, LocalConfig(folder / "s")),
        httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(uds=str(folder / "s")), timeout=20) as http,
    ):
        with trio.fail_after(20):
            while not await caller.find_providers("mcp", "calculator"):  # noqa: ASYNC110 - only asking tells
                await trio.sleep(0.1)
        yield Agent(caller, provider, http)


async def test_the_official_client_finds_and_calls_tools_of_another_member(tmp_path: Path) -> None:
    async with open_agent(tmp_path) as agent:
        peer = str(agent.provider.peer)
        async with Client(streamable_http_client("http://node/mcp", http_client=agent.http)) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
            assert (await agent.call(client, "get_mesh_info"))["peer_id"] == str(agent.caller.peer)
            assert await agent.call(client, "list_local_services") == {"services": []}
            services = (await agent.call(client, "discover_remote_services", type="mcp"))["services"]
            assert {(one["peer_id"], one["name"]) for one in services} == {(peer, "broken"), (peer, "calculator")}
            broken, add = (await agent.call(client, "find_remote_tools"))["tools"]
            assert (broken["service_name"], "502" in broken["error"]) == ("broken", True)
            assert (add["tool_name"], add["description"]) == ("mcp://calculator/add", "The sum.")
            name = {"peer_id": peer, "tool_name": add["tool_name"]}
            assert "a" in (await agent.call(client, "describe_remote_tool", **name))["inputSchema"]["properties"]
            arguments = {"a": 2, "b": 3}
            assert await agent.call(client, "call_remote_tool", **name, arguments=arguments) == {"result": 5}
            labels = {"site": "a", "zone": "nowhere"}  # one of them is enough
            found = await agent.call(client, "call_remote_tool", **name, arguments=arguments, required_labels=labels)
            assert found == {"result": 5}
            for bad in (
                {"peer_id": str(agent.caller.peer), "tool_name": add["tool_name"]},
                {"peer_id": "nobody", "tool_name": add["tool_name"]},
                {"peer_id": peer, "tool_name": "add"},
                {"peer_id": 5, "tool_name": add["tool_name"]},
                {**name, "arguments": [1]},
                {**name, "required_labels": {"site": "b"}},
                {**name, "required_labels": {"site": "a,b"}},
                {**name, "required_labels": "site=a"},
                {"peer_id": peer, "tool_name": "mcp://broken/x"},
            ):
                assert (await client.call_tool("call_remote_tool", bad)).is_error


async def test_json_rpc_by_hand(tmp_path: Path) -> None:
    async with open_agent(tmp_path) as agent:

        async def ask(content: str) -> tuple[int, Any]:
            answer = await agent.http.post("http://node/mcp", content=content)
            error = answer.json().get("error") if answer.content else None
            return answer.status_code, error and error["code"]

        assert (await agent.http.get("http://node/mcp")).status_code == 405
        assert await ask('{"jsonrpc": "2.0", "method": "notifications/initialized"}') == (202, None)
        assert await ask('{"jsonrpc": "2.0", "id": 1, "method": "ping"}') == (200, None)
        assert await ask("{") == (400, -32700)
        assert await ask("[]") == (400, -32600)
        assert await ask('{"jsonrpc": "2.0", "id": 1, "method": "resources/list"}') == (200, -32601)
        for params in ('{"name": "none"}', '{"name": "call_remote_tool"}', "[1]"):
            asked = f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}'
            assert await ask(asked) == (200, -32602)
        assert (await agent.http.post("http://node/mcp", content=bytes(5 * 2**20))).status_code == 413
