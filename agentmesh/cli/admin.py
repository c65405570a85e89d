"""`agentmesh admin`."""

from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import quote

import click

from agentmesh.cli.admin_agents import agents
from agentmesh.cli.admin_calls import AdminCalls, admin_command
from agentmesh.cli.admin_policy import policy
from agentmesh.cli.params import token_options

STATUSES = ("pending", "approved", "rejected")
PAGE = 1000  # nodes in one answer


@click.group("admin")
def command() -> None:
    """Run the mesh: tokens, enrollments, policy, bans."""


command.add_command(agents)
command.add_command(policy)


@command.command("status")
@admin_command
def status(admin: AdminCalls) -> None:
    """How many there are of what."""
    found = admin.call("GET", "/admin/status")
    admin.show(found, ("what", "how many"), list(flat(found)))


def flat(found: dict[str, Any], before: str = "") -> Iterator[tuple[str, object]]:
    """Each value that is no object, by the names that lead to it."""
    for name, value in found.items():
        if isinstance(value, dict):
            yield from flat(cast(dict[str, Any], value), f"{before}{name} ")
        else:
            yield before + name, value


# ── tokens ──


@command.group("tokens")
def tokens() -> None:
    """Bootstrap tokens: invitations to enroll."""


@tokens.command("create")
@token_options
@click.option("--owner", metavar="ISSUER|SUBJECT", help="The user whose it is, and whose its nodes are.")
@click.option("--autonomous-recovery", is_flag=True, help="Its nodes may come back after any time away.")
@admin_command
def create_token(admin: AdminCalls, owner: str | None, **wanted: Any) -> None:
    """Make a bootstrap token. Its value, never shown again, goes to standard output.

    TOKEN=$(agentmesh admin tokens create --role node)
    """
    made = admin.call("POST", "/admin/bootstrap-tokens", wanted | ({"owner": owner} if owner else {}))
    if admin.as_json:
        admin.show(made, (), ())
    else:
        click.echo(made["token"])


@tokens.command("list")
@admin_command
def list_tokens(admin: AdminCalls) -> None:
    """The newest bootstrap tokens."""
    answer = admin.call("GET", "/admin/bootstrap-tokens")
    columns = ("id", "role", "usages", "expires", "revoked", "owner", "description")
    rows = [
        (
            token["id"],
            token["role"],
            f"{token['usages']}/{token['max_usages']}",
            token["expires_at"],
            token["revoked_at"],
            token["owner"],
            token["description"],
        )
        for token in answer["bootstrap_tokens"]
    ]
    admin.show(answer["bootstrap_tokens"], columns, rows)


@tokens.command("revoke")
@click.argument("token_id", metavar="ID")
@admin_command
def revoke_token(admin: AdminCalls, token_id: str) -> None:
    """Revoke a bootstrap token, by its ID. Its nodes stay."""
    admin.call("DELETE", f"/admin/bootstrap-tokens/{quote(token_id, safe='')}")


# ── enrollments ──


@command.group("enrollments")
def enrollments() -> None:
    """Peers that ask to be let in."""


@enrollments.command("list")
@click.option("--status", type=click.Choice(STATUSES), help="Only those of one status.")
@admin_command
def list_enrollments(admin: AdminCalls, status: str | None) -> None:
    """The newest enrollments."""
    answer = admin.call("GET", "/admin/enrollments", **({"status": status} if status else {}))
    columns = ("id", "peer", "role", "labels", "status", "since")
    rows = [
        (found["id"], found["peer_id"], found["role"], found["labels"], found["status"], found["created_at"])
        for found in answer["enrollments"]
    ]
    admin.show(answer["enrollments"], columns, rows)


@enrollments.command("approve")
@click.argument("enrollment_ids", metavar="ID...", type=int, nargs=-1, required=True)
@admin_command
def approve(admin: AdminCalls, enrollment_ids: tuple[int, ...]) -> None:
    """Admit the peers of these enrollments."""
    for enrollment_id in enrollment_ids:
        admin.call("POST", f"/admin/enrollments/{enrollment_id}/approve")


@enrollments.command("reject")
@click.argument("enrollment_ids", metavar="ID...", type=int, nargs=-1, required=True)
@admin_command
def reject(admin: AdminCalls, enrollment_ids: tuple[int, ...]) -> None:
    """Turn the peers of these enrollments away."""
    for enrollment_id in enrollment_ids:
        admin.call("POST", f"/admin/enrollments/{enrollment_id}/reject")


# ── members ──


@command.command("ban")
@click.argument("peer")
@admin_command
def ban(admin: AdminCalls, peer: str) -> None:
    """Put a peer out, and whoever owns it with all that is theirs."""
    admin.call("POST", "/admin/revoke", {"peer_id": peer})


@command.command("unban")
@click.argument("peer")
@admin_command
def unban(admin: AdminCalls, peer: str) -> None:
    """Lift the ban of a peer, and of whoever owns it."""
    admin.call("POST", f"/admin/nodes/{quote(peer, safe='')}/unban")


@command.command("recovery")
@click.argument("peer")
@click.argument("state", type=click.Choice(("on", "off")))
@admin_command
def recovery(admin: AdminCalls, peer: str, state: str) -> None:
    """Say whether a node may come back after any time away."""
    admin.call("POST", f"/admin/nodes/{quote(peer, safe='')}/autonomous-recovery", {"enabled": state == "on"})


@command.command("nodes")
@admin_command
def nodes(admin: AdminCalls) -> None:
    """The nodes that were admitted, routers too."""
    found = list[dict[str, Any]]()
    while True:
        query = {"after": str(found[-1]["peer_id"])} if found else {}
        page: list[dict[str, Any]] = admin.call("GET", "/admin/nodes", **query)["nodes"]
        found += page
        if len(page) < PAGE:
            break
    columns = ("peer", "role", "labels", "by", "owner", "credential until", "banned")
    rows = [
        (
            node["peer_id"],
            node["role"],
            node["labels"],
            node["enrolled_by"],
            node["owner"],
            node["credential_expires_at"],
            node["banned"],
        )
        for node in found
    ]
    admin.show(found, columns, rows)


@command.command("routers")
@admin_command
def routers(admin: AdminCalls) -> None:
    """The routers that are up, and how busy they are."""
    answer = admin.call("GET", "/admin/routers")
    columns = ("peer", "labels", "sessions", "limit", "lease until", "addresses")
    rows = [
        (
            router["peer_id"],
            router["labels"],
            router["connections"],
            router["connection_limit"],
            router["expires_at"],
            " ".join(router["addresses"]),
        )
        for router in answer["routers"]
    ]
    admin.show(answer["routers"], columns, rows)
