"""How the commands of `agentmesh admin` call the control plane, and how they show what it says."""

import functools
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import attrs
import click
import trio
from rich.console import Console
from rich.table import Column, Table

from agentmesh.cli.params import admin_token_option
from agentmesh.cli.program import errors_in_one_line
from agentmesh.control_plane.admin_client import AdminClient, open_admin

UNBOUNDED = 10_000  # characters in a line

F = TypeVar("F", bound=Callable[..., Any])


@attrs.frozen
class AdminCalls:
    """A control plane, and how its answers are shown."""

    url: str
    admin_token: str = attrs.field(repr=False)
    as_json: bool

    def run(self, work: Callable[[AdminClient], Awaitable[Any]]) -> Any:
        """Do `work` with a client. Raises click's errors, in one line."""

        async def main() -> Any:
            async with open_admin(self.url, self.admin_token) as admin:
                return await work(admin)

        try:
            with errors_in_one_line():
                return trio.run(main)
        except ValueError as exc:
            raise click.UsageError(str(exc), click.get_current_context()) from exc

    def call(self, method: str, path: str, body: object = None, **query: str) -> Any:
        """One request; see AdminClient."""
        return self.run(lambda admin: admin.call(method, path, body, **query))

    def show(self, answer: object, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """The answer itself as JSON, or a table of it."""
        show(answer, columns, rows, self.as_json)


def show(answer: object, columns: Sequence[str], rows: Sequence[Sequence[object]], as_json: bool) -> None:
    """Print an answer as JSON, or a table of it."""
    if as_json:
        click.echo(json.dumps(answer, indent=2, ensure_ascii=False))
        return
    # What is not shown on a screen is read by programs, which want every row whole on its line.
    console = Console(width=None if sys.stdout.isatty() else UNBOUNDED)
    table = Table(*(Column(name, overflow="fold") for name in columns), box=None, header_style="bold")
    for row in rows:
        table.add_row(*map(_cell, row))
    console.print(table)


def admin_command(command: F) -> F:
    """Give a command --control-plane, --admin-token-path and --json; its first argument is an AdminCalls."""

    @click.option(
        "--control-plane",
        "url",
        default="http://127.0.0.1:8080",
        show_default=True,
        metavar="URL",
        envvar="AGENTMESH_CONTROL_PLANE",
        show_envvar=True,
        help="URL of the control plane.",
    )
    @admin_token_option("A file with the control plane's admin token.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
    @functools.wraps(command)
    def with_calls(url: str, admin_token: str | None, as_json: bool, **arguments: Any) -> Any:
        if admin_token is None:
            raise click.UsageError("--admin-token-path is needed", click.get_current_context())
        return command(AdminCalls(url, admin_token, as_json), **arguments)

    return with_calls  # type: ignore[return-value]


def _cell(value: object) -> str:
    match value:
        case None | "":
            return "-"
        case True | False:
            return "yes" if value else "no"
        case dict():
            return ",".join(f"{key}={text}" for key, text in sorted(value.items())) or "-"  # pyright: ignore
        case _:
            return str(value)
