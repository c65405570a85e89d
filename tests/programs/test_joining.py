"""Nodes as processes that get into a mesh, and come back into it."""

import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from click.testing import CliRunner, Result

from agentmesh.cli import main
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.control_plane.server import open_control_plane
from agentmesh.credentials import ROLE_NODE
from agentmesh.membership import Enrollment, StateDir, open_membership
from agentmesh.membership.state import CREDENTIAL_FILE, IDENTITY_FILE
from agentmesh.one import One, OneConfig, open_one
from tests.programs.programs import Machine

NOWHERE = "http://127.0.0.1:9"


@asynccontextmanager
async def open_mesh(folder: Path) -> AsyncGenerator[One]:
    config = OneConfig(data_dir=folder / "mesh", bind_address="127.0.0.1:0")
    async with open_one(config) as mesh:
        (folder / "token").write_text(mesh.join_token)
        yield mesh


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), prog_name="agentmesh")


def shows_usage(program: str) -> bool:
    result = run(program, "--help")
    return result.exit_code == 0 and result.stdout.startswith(f"Usage: agentmesh {program} [OPTIONS]")


def test_agentmesh_node_run_help() -> None:
    assert shows_usage("node")


def test_agentmesh_control_plane_help() -> None:
    assert shows_usage("control-plane")


def test_agentmesh_router_help() -> None:
    assert shows_usage("router")


async def test_agentmesh_node_run_with_manual_token_starts(machine: Machine, tmp_path: Path) -> None:
    async with open_mesh(tmp_path) as mesh:
        where = ("--control-plane", mesh.control_plane.url, "--bootstrap-token-path", "token")
        async with machine.running("node", *where) as node:
            peer = (await node.said(r" serving peer=(\S+) routers=\S+"))[1]
            await node.said(f" attached .*{mesh.router.peer}")
        (enrolled,) = [
            found for found, _ in await mesh.control_plane.store.access.nodes("", 9) if str(found.peer) == peer
        ]
        assert enrolled.role == ROLE_NODE


async def test_agentmesh_node_join(machine: Machine, tmp_path: Path) -> None:
    """What it keeps is enough to come back without the token, as the same peer."""
    async with open_mesh(tmp_path) as mesh:
        where = ("--control-plane", mesh.control_plane.url, "--data-dir", "state")
        async with machine.running("node", *where, "--bootstrap-token-path", "token") as node:
            peer = (await node.said(r" serving peer=(\S+)"))[1]
        for name in (IDENTITY_FILE, CREDENTIAL_FILE):
            assert stat.S_IMODE((tmp_path / "state" / name).stat().st_mode) == 0o600
        async with machine.running("node", *where) as node:
            await node.said(f" resumed .*{peer}")
            await node.said(f" serving peer={peer}")


@asynccontextmanager
async def joined(folder: Path) -> AsyncGenerator[str]:
    """The URL of a mesh, in which a peer has been whose state is in a folder."""
    config = Config(
        bind_address="127.0.0.1:0", db_dsn=str(folder / "x.db"), auto_approve_enrollment=True, policy=OPEN_POLICY
    )
    state = StateDir(folder / "state")
    async with open_control_plane(config) as plane:
        way = Enrollment(control_plane=plane.url, token=await plane.create_token("node"), role=ROLE_NODE)
        async with open_membership(state.identity(), way, state=state):
            pass
        yield plane.url


async def test_agentmesh_node_run_with_stored_identity(machine: Machine, tmp_path: Path) -> None:
    async with joined(tmp_path) as url, machine.running("node", "--control-plane", url, "--data-dir", "state") as node:
        await node.said(f" resumed .*{StateDir(tmp_path / 'state').identity().peer}")


def test_agentmesh_node_run_without_identity(tmp_path: Path) -> None:
    result = run("node", "--control-plane", NOWHERE, "--data-dir", str(tmp_path / "state"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"that {NOWHERE} honours, and no bootstrap token to enroll with" in result.stderr.splitlines()[-1]


async def test_agentmesh_node_run_join_non_interactive(machine: Machine) -> None:
    """Nobody is asked anything: it ends, and says what it lacks."""
    async with machine.running("node", "--control-plane", NOWHERE) as node:
        assert await node.ended() == 1
        assert "no bootstrap token to enroll with" in node.text


def test_agentmesh_node_run_control_plane_mismatch(tmp_path: Path) -> None:
    """What was saved for one mesh is not shown to another, and is left as it is."""

    async def join() -> None:
        async with joined(tmp_path):
            pass

    trio.run(join)
    saved = (tmp_path / "state" / CREDENTIAL_FILE).read_bytes()
    result = run("node", "--control-plane", NOWHERE, "--data-dir", str(tmp_path / "state"))
    assert result.exit_code == 1
    assert "the saved credential is for another mesh" in result.stderr
    assert (tmp_path / "state" / CREDENTIAL_FILE).read_bytes() == saved
