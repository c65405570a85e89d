"""`agentmesh one`."""

from functools import partial
from pathlib import Path

import click
import trio
from rich.console import Console
from rich.panel import Panel

from agentmesh.cli.membership import address
from agentmesh.cli.params import logging_options
from agentmesh.cli.program import run_program
from agentmesh.one import OneConfig, open_one
from agentmesh.one.one import DEFAULT_LISTEN
from agentmesh.types import Address

TOKEN_FILE = "join-token"


@click.command("one")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default="mesh",
    show_default=True,
    envvar="AGENTMESH_DATA_DIR",
    show_envvar=True,
    help="The folder for the database, the keys and the join token; created when it is not there.",
)
@click.option(
    "--bind-address",
    default="127.0.0.1:8080",
    show_default=True,
    help="Host and port of the control plane; port 0 takes any free one.",
)
@click.option(
    "--listen",
    type=address,
    multiple=True,
    default=tuple(map(str, DEFAULT_LISTEN)),
    show_default=True,
    metavar="MULTIADDR",
    help="Where the router listens; repeat it for more.",
)
@logging_options
def command(data_dir: Path, bind_address: str, listen: tuple[Address, ...]) -> None:
    """Run a mesh in one process: a control plane and a router, and a token for members to join with."""
    run_program(partial(_serve, OneConfig(data_dir=data_dir, bind_address=bind_address, listen=listen)))


async def _serve(config: OneConfig, stop: trio.Event) -> None:
    async with open_one(config) as mesh:
        token_file = config.data_dir / TOKEN_FILE
        await trio.Path(token_file).touch(mode=0o600)
        await trio.Path(token_file).write_text(mesh.join_token + "\n")
        join = f"agentmesh node --control-plane {mesh.control_plane.url} --bootstrap-token-path {token_file}"
        routers = "\n".join(map(str, mesh.router.addresses))
        Console(stderr=True).print(Panel(f"{join}\n\n{routers}", title="The mesh is up. Join it with", expand=False))
        await stop.wait()
