"""The list of programs, each imported when it is asked for."""

import difflib
import importlib

import click

from agentmesh.cli.program import ProgramGroup

MODULES = {
    name: f"agentmesh.cli.{name.replace('-', '_')}"
    for name in ("admin", "bench", "control-plane", "demo", "node", "one", "router", "token")
}


class Programs(ProgramGroup):
    """Imports a program when it is asked for: a router does not wait for a control plane's libraries."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in MODULES:
            return None
        command: click.Command = importlib.import_module(MODULES[cmd_name]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in MODULES and not args[0].startswith("-"):
            close = "".join(f" Did you mean {name!r}?" for name in difflib.get_close_matches(args[0], MODULES, n=1))
            raise click.UsageError(f"No such command {args[0]!r}.{close}", ctx)
        return super().resolve_command(ctx, args)
