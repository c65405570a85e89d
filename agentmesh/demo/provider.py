"""The member that serves: `python -m agentmesh.demo.provider … FOLDER`. Files over HTTP, and an MCP tool for them."""

import os
from functools import partial
from pathlib import Path

import click
import trio
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.responses import FileResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from agentmesh.cli.program import run_program
from agentmesh.demo.files import sha256_of
from agentmesh.demo.member import config_of, member_options, say_attached, waiting_for_cues
from agentmesh.node import NodeConfig, run_node

PIECE_BYTES = 1024 * 1024  # of a file that is read at once: each costs a turn in a thread


class Files(StaticFiles):
    """Starlette's files, read in larger pieces than its own."""

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        if isinstance(response, FileResponse):
            response.chunk_size = PIECE_BYTES
        return response


def tools(folder: Path) -> MCPServer:
    """An MCP server that knows the files of a folder."""
    server = MCPServer("files")

    async def checksum(name: str) -> str:
        """The SHA-256 of a file that this member serves."""
        return await sha256_of(folder / Path(name).name)

    server.add_tool(checksum)
    return server


@click.command()
@member_options
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(control_plane: str, token: str, state: Path, folder: Path) -> None:
    """Serve the files of FOLDER, and a tool that knows them."""
    run_program(partial(_provide, config_of(control_plane, token, state), folder))


async def _provide(config: NodeConfig, folder: Path, stop: trio.Event) -> None:
    files = Starlette(routes=[Mount("/", Files(directory=folder))])
    async with (
        waiting_for_cues(stop) as cue,
        run_node(config) as node,
        node.serve("http", "files", files),
        node.serve("mcp", "files", tools(folder).streamable_http_app()),
    ):
        await say_attached(node, "tcp")
        await cue()


if __name__ == "__main__":
    main(prog_name="provider")
