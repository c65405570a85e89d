"""The examples, as they are: against a mesh in this process, and within what an example may cost its reader."""

import ast
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import agentmesh
from agentmesh.errors import StreamResetError
from agentmesh.one import One, OneConfig, open_one
from agentmesh.runtime.nursery import open_background
from examples import custom_protocol, hello_call, hello_serve, mcp_client, mcp_server, tunnel_agent, tunnel_client
from examples.test_custom_protocol import (  # collected here, beside the rest
    test_anything_else_is_the_peers_fault_and_does_not_count,
    test_every_voter_counts_once_and_the_last_vote_counts,
)

__all__ = [
    "test_anything_else_is_the_peers_fault_and_does_not_count",
    "test_every_voter_counts_once_and_the_last_vote_counts",
]

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
MAX_LINES = 60
PATIENCE = 20.0  # seconds


@asynccontextmanager
async def open_mesh(folder: Path) -> AsyncGenerator[One]:
    with trio.fail_after(PATIENCE):
        async with open_one(OneConfig(data_dir=folder / "mesh", bind_address="127.0.0.1:0")) as mesh:
            yield mesh


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[[], Awaitable[str]]:
    """`await printed()` is what an example prints, once it prints something."""

    async def wait() -> str:
        while not (text := capsys.readouterr().out):  # noqa: ASYNC110 - only looking tells
            await trio.sleep(0.02)
        return text.strip()

    return wait


async def test_hello(tmp_path: Path, printed: Callable[[], Awaitable[str]]) -> None:
    async with open_mesh(tmp_path) as mesh, open_background() as nursery:
        way_in = (mesh.control_plane.url, mesh.join_token)
        nursery.start_soon(hello_serve.main, *way_in)
        await hello_call.main(*way_in, await printed())
        assert (await printed()).startswith("Hello 12D3")


# httpx2 and the SDK leave their generators to the garbage collector, of which Trio warns.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_mcp(tmp_path: Path, printed: Callable[[], Awaitable[str]]) -> None:
    async with open_mesh(tmp_path) as mesh, open_background() as nursery:
        way_in = (mesh.control_plane.url, mesh.join_token)
        nursery.start_soon(mcp_server.main, *way_in)
        await mcp_client.main(*way_in, await printed())
        assert await printed() == "19 + 23 = 42"


async def test_a_tunnel_through_an_agent(tmp_path: Path, printed: Callable[[], Awaitable[str]]) -> None:
    async with open_mesh(tmp_path) as mesh, open_background() as nursery:
        way_in = (mesh.control_plane.url, mesh.join_token)
        nursery.start_soon(tunnel_agent.main, *way_in)
        await tunnel_client.main(*way_in, await printed())
        assert await printed() == "Hello, world"


async def test_a_protocol_of_ones_own(tmp_path: Path) -> None:
    ballot = custom_protocol.Ballot()
    async with open_mesh(tmp_path) as mesh:
        way_in = (mesh.control_plane.url, mesh.join_token)
        async with (
            agentmesh.open_node(*way_in, protocols=[custom_protocol.protocol(ballot)]) as teller,
            agentmesh.open_node(*way_in) as voter,
            agentmesh.open_node(*way_in) as other,
        ):

            async def vote(node: agentmesh.Node, choice: bytes) -> int:
                return await custom_protocol.vote(await node.open_stream(teller.peer, custom_protocol.VOTE), choice)

            assert await vote(voter, b"yes") == 1
            assert await vote(other, b"yes") == 2
            assert await vote(other, b"no") == 1
            with pytest.raises(StreamResetError):
                await vote(voter, b"perhaps")
    assert ballot.tally == {b"yes": 1, b"no": 1}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_short_and_say_how_they_are_run(path: Path) -> None:
    text = path.read_text()
    about = ast.get_docstring(ast.parse(text)) or ""
    assert len(text.splitlines()) < MAX_LINES
    assert f"python examples/{path.name} " in about or "pytest examples/" in about
