"""The `agentmesh` command. Each program is a module of its own."""

import click

from agentmesh.cli import programs

__all__ = ["main"]


@click.group(cls=programs.Programs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="agentmesh")
def main() -> None:
    """A private network for AI agents."""
