"""`agentmesh admin` against a control plane on loopback: what it does, what it shows, how it fails."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.lowlevel
import yaml
from click.testing import CliRunner, Result

from agentmesh.cli import main
from agentmesh.control_plane.client import RouterLoad, open_client
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.policy.document import policy_document
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.control_plane.server import ControlPlane, open_control_plane
from agentmesh.identity import Identity
from agentmesh.types import Address

ADMIN_TOKEN = "an admin token for tests"
POLICY = """\
roles:
- name: mesh:role:node
  allowed_services: [mcp://calc, "http://*"]
  allowed_targets: ["*"]
bindings:
- role: mesh:role:node
  members: [group:engineering]
"""


def run(*arguments: str, stdin: str = "", **env: str) -> Result:
    settings = {"AGENTMESH_ADMIN_TOKEN": ADMIN_TOKEN, "AGENTMESH_CONTROL_PLANE": "", "COLUMNS": "80", **env}
    return CliRunner().invoke(main, list(arguments), input=stdin, env=settings, prog_name="agentmesh")


@attrs.frozen
class Mesh:
    """A control plane, and an admin who sits before it."""

    plane: ControlPlane

    async def admin(self, *arguments: str, stdin: str = "") -> str:
        """What a command prints, after it did well."""
        result = await self.tried(*arguments, stdin=stdin)
        assert (result.exit_code, result.stderr) == (0, ""), result.stderr
        return result.stdout

    async def tried(self, *arguments: str, stdin: str = "") -> Result:
        command = partial(run, "admin", *arguments, stdin=stdin, AGENTMESH_CONTROL_PLANE=self.plane.url)
        return await trio.to_thread.run_sync(command)

    async def shown(self, *arguments: str) -> Any:
        return json.loads(await self.admin(*arguments, "--json"))


@asynccontextmanager
async def open_mesh(folder: Path, **settings: Any) -> AsyncGenerator[Mesh]:
    config = Config(
        bind_address="127.0.0.1:0",
        db_dsn=str(folder / "cp.db"),
        admin_token=ADMIN_TOKEN,
        policy=OPEN_POLICY,
        **settings,
    )
    async with open_control_plane(config) as plane:
        yield Mesh(plane)


async def test_tokens_are_made_listed_and_revoked(tmp_path: Path) -> None:
    async with open_mesh(tmp_path) as mesh:
        value = (await mesh.admin("tokens", "create", "--role", "node", "--ttl", "7d", "--max-usages", "3")).strip()
        assert value.startswith("mesh-bt-")
        made = await mesh.shown("tokens", "create", "--role", "router", "--autonomous-recovery", "--description", "lab")
        assert (made["autonomous_recovery"], made["description"]) == (True, "lab")
        listed = await mesh.shown("tokens", "list")
        assert [token["role"] for token in listed if token["id"] == made["id"]] == ["mesh:role:router"]
        table = await mesh.admin("tokens", "list")
        assert table.split("\n", 1)[0].split() == ["id", "role", "usages", "expires", "revoked", "owner", "description"]
        assert f"{made['id']}  mesh:role:router  0/1" in table
        assert value not in table
        await mesh.admin("tokens", "revoke", made["id"])
        (revoked,) = [token for token in await mesh.shown("tokens", "list") if token["id"] == made["id"]]
        assert revoked["revoked_at"] is not None
        refused = await mesh.tried("tokens", "revoke", "no?such")
        assert (refused.exit_code, "there is no such bootstrap token" in refused.stderr) == (1, True)


async def test_enrollments_are_listed_and_resolved(tmp_path: Path) -> None:
    async with open_mesh(tmp_path, poll_interval=1.0) as mesh, trio.open_nursery() as nursery:
        token = (await mesh.admin("tokens", "create", "--role", "node", "--max-usages", "3")).strip()
        for _ in range(2):
            nursery.start_soon(_ask, mesh.plane.url, token)
        while len(waiting := await mesh.shown("enrollments", "list", "--status", "pending")) < 2:
            await trio.lowlevel.checkpoint()
        first, second = (str(found["id"]) for found in waiting)
        await mesh.admin("enrollments", "approve", first)
        await mesh.admin("enrollments", "reject", second)
        table = await mesh.admin("enrollments", "list")
        assert [line.split()[4] for line in table.splitlines()[1:]] == ["approved", "rejected"]
        again = await mesh.tried("enrollments", "approve", first)
        assert (again.exit_code, "resolved already" in again.stderr) == (1, True)
        nursery.cancel_scope.cancel()


async def _ask(url: str, token: str) -> None:
    async with open_client(url, Identity.generate()) as client:
        await client.enroll(token, labels={"site": "a"})


async def test_members_are_listed_banned_and_let_in_again(tmp_path: Path) -> None:
    async with open_mesh(tmp_path, auto_approve_enrollment=True) as mesh:
        router = Identity.generate()
        async with open_client(mesh.plane.url, router) as client:
            issued = await client.enroll(await mesh.plane.create_token("router"), labels={"zone": "a"})
            address = Address.parse("/ip4/127.0.0.1/tcp/4001").with_peer(router.peer)
            await client.renew_lease(issued.credential, [address], load=RouterLoad(connections=3, connection_limit=9))
        table = await mesh.admin("routers")
        assert table.splitlines()[1].split()[:4] == [str(router.peer), "zone=a", "3", "9"]
        (node,) = await mesh.shown("nodes")
        assert (node["peer_id"], node["role"], node["banned"]) == (str(router.peer), "mesh:role:router", False)
        await mesh.admin("recovery", str(router.peer), "on")
        await mesh.admin("ban", router.peer.dns_label)
        (node,) = await mesh.shown("nodes")
        assert (node["banned"], node["autonomous_recovery"]) == (True, True)
        assert (await mesh.admin("nodes")).splitlines()[1].split()[-1] == "yes"
        assert await mesh.shown("routers") == []
        await mesh.admin("unban", str(router.peer))
        assert len(await mesh.shown("routers")) == 1
        assert (await mesh.tried("ban", "nobody")).exit_code == 1


async def test_the_status_is_shown(tmp_path: Path) -> None:
    async with open_mesh(tmp_path) as mesh:
        await mesh.plane.create_token("node")
        table = await mesh.admin("status")
        assert ["bootstrap_tokens", "active", "1"] in [line.split() for line in table.splitlines()]
        assert (await mesh.shown("status"))["bootstrap_tokens"]["active"] == 1


async def test_a_policy_is_read_and_written_as_yaml(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    async with open_mesh(tmp_path) as mesh:
        assert yaml.safe_load(await mesh.admin("policy", "get")) == {"roles": policy_document(OPEN_POLICY)["roles"]}
        await mesh.admin("policy", "set", str(tmp_path / "policy.yaml"))
        written = await mesh.admin("policy", "get")
        assert yaml.safe_load(written) == yaml.safe_load(POLICY) == await mesh.shown("policy", "get")
        await mesh.admin("policy", "set", "-", stdin=written.replace("mcp://calc", "mcp://clock"))
        assert "mcp://clock" in await mesh.admin("policy", "get")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("roles: [", "no YAML: "),
        ("roles: []\nroles: []", "no YAML: a key stands there twice"),
        ("", "an object with roles, bindings is needed"),
        ("rules: []", "there is no field 'rules'; the fields are roles, bindings"),
        ("roles: [{name: a, allowed_services: [on]}]", "roles[0].allowed_services[0]: a text is needed"),
        ("roles: [{name: a, allowed_targets: [groups:x]}]", "roles[0].allowed_targets[0]: a target is"),
        ("{? [a] : b}", "no YAML: "),
        ("!!python/object:os.system {}", "no YAML: "),
        ("a: &a [*a]", "there is no field 'a'"),
    ],
)
def test_a_policy_is_checked_without_a_control_plane(tmp_path: Path, text: str, fault: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    result = run("admin", "policy", "check", str(file))
    assert (result.exit_code, f"agentmesh: {file}: " in result.stderr, fault in result.stderr) == (1, True, True), (
        result
    )


def test_a_good_policy_and_one_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    assert run("admin", "policy", "check", str(tmp_path / "policy.yaml")).exit_code == 0
    assert run("admin", "policy", "check", str(tmp_path / "none.yaml")).exit_code == 2
    (tmp_path / "latin.yaml").write_bytes(b"roles: \xff")
    assert "not text" in run("admin", "policy", "check", str(tmp_path / "latin.yaml")).stderr


@pytest.mark.parametrize(
    ("arguments", "env", "status", "text"),
    [
        (("nodes",), {"AGENTMESH_ADMIN_TOKEN": ""}, 2, "--admin-token-path is needed"),
        (("nodes", "--control-plane", "nonsense"), {}, 2, "not an HTTP URL: 'nonsense'"),
        (("nodes", "--control-plane", "http://127.0.0.1:9"), {}, 1, "the control plane at http://127.0.0.1:9 does not"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(
    arguments: tuple[str, ...], env: dict[str, str], status: int, text: str
) -> None:
    result = run("admin", *arguments, **env)
    assert (result.exit_code, text in result.stderr, result.stderr.count("\n")) == (status, True, 1), result.stderr


async def test_a_wrong_admin_token_is_refused(tmp_path: Path) -> None:
    async with open_mesh(tmp_path) as mesh:
        command = partial(run, "admin", "nodes", "--control-plane", mesh.plane.url, AGENTMESH_ADMIN_TOKEN="wrong")
        result = await trio.to_thread.run_sync(command)
        assert (result.exit_code, "an admin token is needed" in result.stderr) == (1, True)
        assert "wrong" not in result.stderr
