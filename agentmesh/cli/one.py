"""`agentmesh one`."""

import logging
import os
import secrets
import shlex
import tempfile
from functools import partial
from pathlib import Path

import click
import trio

from agentmesh.cli.config_file import config_option
from agentmesh.cli.membership import address
from agentmesh.cli.params import data_dir_option, logging_options, secret_file
from agentmesh.cli.policy_file import policy_option
from agentmesh.cli.program import errors_in_one_line, run_program
from agentmesh.control_plane.policy.model import Policy
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.one import One, OneConfig, open_one
from agentmesh.one.one import DEFAULT_LISTEN
from agentmesh.types import Address

logger = logging.getLogger(__name__)

TOKEN_FILE = "join-token"
ADMIN_TOKEN_FILE = "admin-token"
SECRET_BYTES = 32


@click.command("one")
@config_option
@data_dir_option("mesh", "the database, the keys and the join token")
@click.option(
    "--bind-address",
    default="127.0.0.1:8080",
    show_default=True,
    metavar="HOST:PORT",
    envvar="AGENTMESH_BIND_ADDRESS",
    show_envvar=True,
    help="Where the control plane serves; port 0 takes any free one.",
)
@click.option(
    "--listen",
    type=address,
    multiple=True,
    default=tuple(map(str, DEFAULT_LISTEN)),
    show_default=True,
    metavar="MULTIADDR",
    help="Where the router listens; repeat it for more. /ws behind a TCP port makes it a WebSocket, /http HTTP/2.",
)
@click.option(
    "--join-usages",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="How many members the join token lets in.",
)
@policy_option("The policy to begin with, in YAML, instead of one by which everybody may do everything.")
@logging_options
def command(
    data_dir: Path, bind_address: str, listen: tuple[Address, ...], join_usages: int, policy: Policy | None
) -> None:
    """Run a whole mesh in one process, for a laptop.

    A control plane and a router on this machine, and two tokens in files: one with which members join for a day, and
    one with which `agentmesh admin` runs the mesh.
    """
    with errors_in_one_line():
        admin_token = secret_in(data_dir / ADMIN_TOKEN_FILE)
    config = OneConfig(
        data_dir=data_dir,
        bind_address=bind_address,
        listen=listen,
        admin_token=admin_token,
        join_usages=join_usages,
        policy=policy or OPEN_POLICY,
    )
    run_program(partial(_serve, config))


async def _serve(config: OneConfig, stop: trio.Event) -> None:
    async with open_one(config) as mesh:
        token_file = (config.data_dir / TOKEN_FILE).resolve()
        write_secret(token_file, mesh.join_token)
        click.echo(welcome(mesh, token_file))
        await stop.wait()
        logger.info("stopping")


def welcome(mesh: One, token_file: Path) -> str:
    """How to join. What is to be copied stands on lines of its own, unbroken however narrow the terminal is."""
    url = mesh.control_plane.url
    way_in = ["--control-plane", url, "--bootstrap-token-path", str(token_file)]
    lines = [
        "The mesh is up.",
        "",
        f"  control plane  {url}",
        *(f"  router         {router}" for router in mesh.router.addresses),
        f"  join token     {token_file}",
        f"  admin token    {token_file.with_name(ADMIN_TOKEN_FILE)}",
        "",
        "Join it with a node, beside any server:",
        "",
        shlex.join(["agentmesh", "node", *way_in]),
        "",
        "or with an agent, that leads to the SSH server of its machine, and a port that leads there through it:",
        "",
        shlex.join(["agentmesh", "agent", "run", "--agent-id", "devbox", "--allow", "tcp://127.0.0.1:22", *way_in]),
        shlex.join(["agentmesh", "forward", "devbox", "tcp://127.0.0.1:22", "--listen", "127.0.0.1:2222", *way_in]),
        "",
        "or from Python, with the token that is in the file:",
        "",
        f'async with agentmesh.open_node("{url}", token) as node: ...',
        "",
        "Ctrl-C stops it.",
    ]
    return "\n".join(lines)


def secret_in(path: Path) -> str:
    """The secret in a file; a new one when there is none. Raises OSError."""
    if path.exists():
        return secret_file(str(path))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    secret = secrets.token_urlsafe(SECRET_BYTES)
    write_secret(path, secret)
    return secret


def write_secret(path: Path, text: str) -> None:
    """A file that only its owner reads (0600), in the place of whatever was there."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp gives 0600
    with os.fdopen(handle, "w") as file:
        file.write(text + "\n")
    os.replace(name, path)
