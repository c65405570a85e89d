"""`agentmesh token create`."""

import os
import time
from datetime import UTC, datetime
from functools import partial

import attrs
import click
import trio
from rich.console import Console
from rich.table import Table

from agentmesh.cli.params import admin_token_option, secret_file, token_options
from agentmesh.cli.program import errors_in_one_line
from agentmesh.control_plane.admin_client import CreatedToken, create_token_at
from agentmesh.control_plane.dsn import SqliteFile, parse_dsn
from agentmesh.control_plane.store import open_store
from agentmesh.control_plane.tokens import create_token


@click.group("token")
def command() -> None:
    """Bootstrap tokens: invitations to enroll."""


@command.command("create")
@token_options
@click.option(
    "--control-plane",
    "url",
    envvar="AGENTMESH_CONTROL_PLANE",
    show_envvar=True,
    help="URL of the control plane to ask for it; needs --admin-token-path.",
)
@admin_token_option("A file with the control plane's admin token.")
@click.option(
    "--db-dsn",
    help="The control plane's database, to make the token in it instead; the control plane may be running.",
)
@click.option(
    "--db-dsn-path",
    "secret_dsn",
    type=secret_file,
    metavar="FILE",
    help="A file with that database's URL, for one with a password in it.",
)
def create(
    role: str,
    max_usages: int,
    ttl: float,
    description: str,
    url: str | None,
    admin_token: str | None,
    db_dsn: str | None,
    secret_dsn: str | None,
) -> None:
    """Make a bootstrap token. Its value, never shown again, goes to standard output; about it, to standard error.

    TOKEN=$(agentmesh token create --role node --db-dsn control-plane.db)
    """
    wanted = Wanted(role=role, max_usages=max_usages, ttl=ttl, description=description)
    if dsn := secret_dsn or db_dsn:
        make = partial(_in_database, wanted, _existing(dsn))
    elif url is not None and admin_token is not None:
        make = partial(_at_control_plane, wanted, url, admin_token)
    else:
        raise click.UsageError("say where: --control-plane and --admin-token-path, or --db-dsn or --db-dsn-path")
    with errors_in_one_line():
        created = trio.run(make)
    _show(created)
    click.echo(created.value)


@attrs.frozen(kw_only=True)
class Wanted:
    """The token to make."""

    role: str
    max_usages: int
    ttl: float
    description: str


async def _in_database(wanted: Wanted, dsn: str) -> CreatedToken:
    async with open_store(dsn) as store:
        value, token = await create_token(store, time.time, **attrs.asdict(wanted))
    return CreatedToken(value, token.id, token.role, token.max_usages, token.expires_at)


async def _at_control_plane(wanted: Wanted, url: str, admin_token: str) -> CreatedToken:
    try:
        return await create_token_at(url, admin_token, **attrs.asdict(wanted))
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc


def _existing(dsn: str) -> str:
    """A token in a database that no control plane has would be of no use, so none is created."""
    try:
        database = parse_dsn(dsn)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    if isinstance(database, SqliteFile) and not os.path.exists(database.path):
        raise click.UsageError(f"--db-dsn: there is no file {database.path}")
    return dsn


def _show(created: CreatedToken) -> None:
    table = Table("role", "usages", "expires", "id", box=None)
    expires = datetime.fromtimestamp(created.expires_at, UTC).isoformat(sep=" ", timespec="seconds")
    table.add_row(created.role, str(created.max_usages), expires, created.id)
    Console(stderr=True).print(table)
