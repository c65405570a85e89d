"""The list of programs, each imported when it is asked for."""

import difflib
import importlib

import click

from agentmesh.cli.program import ProgramGroup

PROGRAMS = {  # and what each is for, in its own words: no program is imported to list them
    "admin": "Run the mesh: tokens, enrollments, policy, bans.",
    "agent": "Run an agent: it leads others to what is beside it.",
    "bench": "Have many members join a mesh, and see how it bears them.",
    "control-plane": "Run the control plane: it admits members, lists routers.",
    "demo": "Watch a mesh of six processes on this machine at work.",
    "forward": "Lead ports of this machine to targets beside AGENT.",
    "node": "Run a node: a member that serves what runs beside it.",
    "one": "Run a whole mesh in one process, for a laptop.",
    "router": "Run a router: it relays for members what it cannot read.",
    "token": "Bootstrap tokens: invitations to enroll.",
}


class Programs(ProgramGroup):
    """Imports a program when it is asked for: a router does not wait for a control plane's libraries."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(PROGRAMS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in PROGRAMS:
            return None
        module = importlib.import_module(f"agentmesh.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(PROGRAMS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in PROGRAMS and not args[0].startswith("-"):
            close = "".join(f" Did you mean {name!r}?" for name in difflib.get_close_matches(args[0], PROGRAMS, n=1))
            raise click.UsageError(f"No such command {args[0]!r}.{close}", ctx)
        return super().resolve_command(ctx, args)
