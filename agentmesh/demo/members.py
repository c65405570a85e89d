"""The programs of the demo's members: `python -m agentmesh.demo.members provider|reader|agent …`.

Each is what an agent's own code would be: it opens a node, serves or calls, and ends.
"""

import hashlib
from functools import partial
from pathlib import Path

import click
import trio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer
from mcp_types import TextContent
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from agentmesh.abc import Transport
from agentmesh.cli.params import logging_options
from agentmesh.cli.program import ProgramGroup, run_program
from agentmesh.demo.reports import Attached, Downloaded, Progressed, ToolAnswered, send_report
from agentmesh.membership import Enrollment
from agentmesh.node import Node, NodeConfig, run_node
from agentmesh.transports.tcp import TcpTransport
from agentmesh.transports.websocket import WebSocketTransport

REPORT_BYTES = 8 * 1024 * 1024  # between two reports of a download's progress
TRANSPORTS: dict[str, type[Transport]] = {"tcp": TcpTransport, "ws": WebSocketTransport}


@click.group(cls=ProgramGroup)
@click.option("--control-plane", required=True, help="The control plane's URL.")
@click.option("--token", required=True, help="A file with a bootstrap token.", type=click.Path(path_type=Path))
@click.option("--state", required=True, help="The member's folder.", type=click.Path(path_type=Path))
@logging_options
@click.pass_context
def main(context: click.Context, control_plane: str, token: Path, state: Path) -> None:
    """A member of the demo's mesh."""
    enrollment = Enrollment(control_plane=control_plane, token=token.read_text().strip())
    context.obj = NodeConfig(enrollment=enrollment, state_dir=state)


@main.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.pass_obj
def provider(config: NodeConfig, folder: Path) -> None:
    """Serve the files of FOLDER, and tools that know them."""
    run_program(partial(_provide, config, folder))


@main.command()
@click.argument("url")
@click.pass_obj
def reader(config: NodeConfig, url: str) -> None:
    """Download URL, once attached over TCP and once over WebSocket."""
    run_program(partial(_read, config, url))


@main.command()
@click.argument("url")
@click.argument("file")
@click.pass_obj
def agent(config: NodeConfig, url: str, file: str) -> None:
    """Ask the tool server at URL for the checksum of FILE."""
    run_program(partial(_ask, config, url, file))


async def _provide(config: NodeConfig, folder: Path, stop: trio.Event) -> None:
    files = Starlette(routes=[Mount("/", StaticFiles(directory=folder))])
    async with (
        run_node(config) as node,
        node.serve("http", "files", files),
        node.serve("mcp", "files", _tools(folder).streamable_http_app()),
    ):
        _say_attached(node, "tcp")
        await stop.wait()


def _tools(folder: Path) -> MCPServer:
    server = MCPServer("files")

    @server.tool()
    async def checksum(name: str) -> str:
        """The SHA-256 of a file that this member serves."""
        path = folder / Path(name).name
        return await trio.to_thread.run_sync(_sha256, path)

    return server


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _read(config: NodeConfig, url: str, stop: trio.Event) -> None:
    for name, transport in TRANSPORTS.items():
        async with run_node(config, transports=[transport()]) as node:
            _say_attached(node, name)
            await _download(node, url, name)


async def _download(node: Node, url: str, transport: str) -> None:
    digest, received, reported = hashlib.sha256(), 0, 0
    started = trio.current_time()
    async with node.http_client(timeout=30) as client, client.stream("GET", url) as response:
        response.raise_for_status()
        total = int(response.headers["content-length"])
        async for chunk in response.aiter_raw():
            digest.update(chunk)
            received += len(chunk)
            if received - reported >= REPORT_BYTES or received == total:
                reported = received
                send_report(Progressed(received, total))
    send_report(Downloaded(transport, received, trio.current_time() - started, digest.hexdigest()))


async def _ask(config: NodeConfig, url: str, file: str, stop: trio.Event) -> None:
    async with run_node(config) as node, node.http_client2(timeout=30) as http:
        _say_attached(node, "tcp")
        started = trio.current_time()
        async with Client(streamable_http_client(url, http_client=http)) as client:
            result = await client.call_tool("checksum", {"name": file})
        texts = [part.text for part in result.content if isinstance(part, TextContent)]
        send_report(ToolAnswered(" ".join(texts), trio.current_time() - started))
        await stop.wait()


def _say_attached(node: Node, transport: str) -> None:
    send_report(Attached(str(node.peer), [str(router) for router in node.routers], transport))


if __name__ == "__main__":
    main(prog_name="agentmesh.demo.members")
