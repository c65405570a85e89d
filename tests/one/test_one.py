"""A mesh in one process: it comes up with one call, lets members in, and is there again after a restart."""

import shlex
import stat
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from agentmesh.cli.one import welcome
from agentmesh.cli.programs import Programs
from agentmesh.control_plane.errors import EnrollmentRejectedError
from agentmesh.node import open_node
from agentmesh.one import OneConfig, open_one
from agentmesh.router import Router
from agentmesh.testing import leaves_nothing
from agentmesh.types import Address
from tests.node.loopback import app, url_of


def config_of(folder: Path, **settings: object) -> OneConfig:
    return OneConfig(data_dir=folder / "mesh", bind_address="127.0.0.1:0", **settings)  # type: ignore[arg-type]


async def test_members_join_with_its_token_and_call_each_other(tmp_path: Path) -> None:
    async with (
        leaves_nothing(),
        open_one(config_of(tmp_path)) as mesh,
        open_node(mesh.control_plane.url, mesh.join_token) as alice,
        open_node(mesh.control_plane.url, mesh.join_token) as bob,
        bob.serve("http", "app", app()),
        alice.http_client() as client,
    ):
        response = await client.get(url_of(bob))
        assert (response.status_code, response.text) == (200, f"hello {alice.peer}")
        assert mesh.join_token not in repr(mesh)


async def test_it_is_the_same_mesh_after_a_restart(tmp_path: Path) -> None:
    routers = list[Router]()
    for _ in range(2):
        async with (
            open_one(config_of(tmp_path)) as mesh,
            open_node(mesh.control_plane.url, mesh.join_token, state_dir=tmp_path / "alice") as alice,
        ):
            routers.append(mesh.router)
            assert alice.routers == (mesh.router.peer,)
    assert routers[0].peer == routers[1].peer
    assert routers[0].membership.trusted == routers[1].membership.trusted


async def test_a_mesh_that_lost_its_database_is_a_new_one_with_the_same_router(tmp_path: Path) -> None:
    async with open_one(config_of(tmp_path)) as mesh:
        peer, trusted = mesh.router.peer, mesh.router.membership.trusted
    for file in (tmp_path / "mesh").glob("control-plane.db*"):
        file.unlink()
    async with open_one(config_of(tmp_path)) as mesh:
        assert mesh.router.peer == peer
        assert mesh.router.membership.trusted != trusted


async def test_its_folder_is_the_owners_alone(tmp_path: Path) -> None:
    async with open_one(config_of(tmp_path)):
        assert stat.S_IMODE((tmp_path / "mesh").stat().st_mode) == 0o700


async def test_the_join_token_lets_in_as_many_as_it_says(tmp_path: Path) -> None:
    async with open_one(config_of(tmp_path, join_usages=1)) as mesh:
        async with open_node(mesh.control_plane.url, mesh.join_token):
            pass
        with pytest.raises(EnrollmentRejectedError):
            async with open_node(mesh.control_plane.url, mesh.join_token):
                raise AssertionError("unreachable")


async def test_its_router_listens_where_it_is_told(tmp_path: Path) -> None:
    websocket = Address.parse("/ip4/127.0.0.1/tcp/0/ws")
    async with (
        open_one(config_of(tmp_path, listen=(websocket,))) as mesh,
        open_node(mesh.control_plane.url, mesh.join_token) as node,
    ):
        assert [address.names for address in mesh.router.addresses] == [("ip4", "tcp", "ws", "p2p")]
        assert node.routers == (mesh.router.peer,)


def test_a_token_for_nobody_is_none() -> None:
    with pytest.raises(ValueError, match="join_usages"):
        OneConfig(join_usages=0)


async def test_an_address_that_is_taken_is_the_systems_error(tmp_path: Path) -> None:
    async with open_one(config_of(tmp_path)) as mesh:
        taken = OneConfig(data_dir=tmp_path / "second", bind_address=mesh.control_plane.url.removeprefix("http://"))
        with pytest.raises(OSError, match="in use"):
            async with open_one(taken):
                raise AssertionError("unreachable")


async def test_what_is_said_at_the_start_can_be_typed_as_it_is(tmp_path: Path) -> None:
    async with open_one(config_of(tmp_path)) as mesh:
        token = tmp_path / "join token"
        token.write_text(mesh.join_token)
        said = [shlex.split(line) for line in welcome(mesh, token).splitlines() if line.startswith("agentmesh ")]
        assert [" ".join(words[1:3]) for words in said] == ["node --control-plane", "agent run", "forward devbox"]
        for words in said:
            result = await trio.to_thread.run_sync(
                CliRunner().invoke, Programs(name="agentmesh"), [*words[1:], "--nonsense"]
            )
            assert result.stderr.count("No such option '--nonsense'") == 1, result.output
