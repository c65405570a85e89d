"""The `agentmesh` command. Each program is a module of its own; here is only their list."""

import click

from agentmesh.cli import control_plane, demo, node, one, program, router, token

__all__ = ["main"]


@click.group(cls=program.ProgramGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="agentmesh")
def main() -> None:
    """A private network for AI agents."""


for _command in (control_plane.command, router.command, node.command, one.command, token.command, demo.command):
    main.add_command(_command)
