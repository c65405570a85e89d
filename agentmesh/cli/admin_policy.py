"""`agentmesh admin policy`."""

from typing import IO

import click

from agentmesh.cli.admin_calls import AdminCalls, admin_command
from agentmesh.cli.policy_file import read_policy, written
from agentmesh.control_plane.policy.document import policy_document


@click.group("policy")
def policy() -> None:
    """Who may do what."""


@policy.command("get")
@admin_command
def get(admin: AdminCalls) -> None:
    """Print the policy in force, as YAML."""
    document = admin.call("GET", "/admin/policy")
    if admin.as_json:
        admin.show(document, (), ())
    else:
        click.echo(written(document), nl=False)


@policy.command("set")
@click.argument("file", type=click.File(encoding="utf-8"))
@admin_command
def set_(admin: AdminCalls, file: IO[str]) -> None:
    """Put the policy in FILE, YAML or JSON, in the place of the one in force. "-" is standard input."""
    admin.call("PUT", "/policies", policy_document(read_policy(file)))


@policy.command("check")
@click.argument("file", type=click.File(encoding="utf-8"))
def check(file: IO[str]) -> None:
    """Say what is wrong with the policy in FILE, without a control plane."""
    read_policy(file)
