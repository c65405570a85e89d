"""The member that acts as an agent does: `python -m agentmesh.demo.agent … URL FILE` calls an MCP tool."""

from functools import partial
from pathlib import Path

import click
import httpx2
import trio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from agentmesh.cli.program import run_program
from agentmesh.demo.member import config_of, member_options, say_attached, say_circuit, waiting_for_cues
from agentmesh.demo.reports import ToolAnswered, send_report
from agentmesh.node import NodeConfig, run_node
from agentmesh.services import canonical_url, peer_of_host

HTTP_TIMEOUT = 30.0


@click.command()
@member_options
@click.argument("url")
@click.argument("file")
def main(control_plane: str, token: str, state: Path, url: str, file: str) -> None:
    """Ask the tool server at URL for the checksum of FILE, at a cue."""
    run_program(partial(_ask, config_of(control_plane, token, state), url, file))


async def _ask(config: NodeConfig, url: str, file: str, stop: trio.Event) -> None:
    async with waiting_for_cues(stop) as cue, run_node(config) as node:
        await say_attached(node, "tcp")
        await cue()
        started = trio.current_time()
        async with node.http_client2(timeout=HTTP_TIMEOUT) as http:
            answer = await _checksum(http, url, file)
        say_circuit(node, peer_of_host(httpx2.URL(canonical_url(url)).host))
        send_report(ToolAnswered(answer, trio.current_time() - started))
        await cue()


async def _checksum(http: httpx2.AsyncClient, url: str, file: str) -> str:
    async with Client(streamable_http_client(url, http_client=http)) as client:
        result = await client.call_tool("checksum", {"name": file})
    return " ".join(part.text for part in result.content if isinstance(part, TextContent))


if __name__ == "__main__":
    main(prog_name="agent")
