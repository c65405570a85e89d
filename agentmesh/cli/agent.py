"""`agentmesh agent`."""

import click

from agentmesh.cli.agent_run import command as run
from agentmesh.cli.program import ProgramGroup


@click.group("agent", cls=ProgramGroup)
def command() -> None:
    """Run an agent: it leads others to what is beside it."""


command.add_command(run, "run")
