"""docs/local-api.md: each command in it does what it says, each route is there, each tool and each link."""

import argparse
import re
import shlex
from pathlib import Path

import httpx2
import pytest
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from agentmesh.cli.node import command
from agentmesh.local import LocalConfig, serve_local_api
from agentmesh.local.providers import MeshDiscovery
from agentmesh.local.tools import NodeTools
from agentmesh.node import Node
from examples import local_models
from tests.local.test_openai import Provider
from tests.node.loopback import open_loopback

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "local-api.md").read_text()
COMMANDS = re.findall(r"^    curl (.*)$", TEXT, re.MULTILINE)
ROUTES = re.findall(r"^\| `(/[^`]*)` \|", TEXT, re.MULTILINE)
TOOLS = re.findall(r"^\| `(\w+_\w+)` \| ", TEXT, re.MULTILINE)

# What openai's and httpx2's generators do when they are dropped is theirs.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def curl() -> argparse.ArgumentParser:
    """As much of curl's command line as the document has."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--unix-socket")
    parser.add_argument("-N", action="store_true")
    parser.add_argument("-d")
    parser.add_argument("-H", action="append", default=[])
    return parser


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{request.method} {request.scope['raw_path'].decode()} {(await request.body()).decode()}")


def documents() -> Starlette:
    return Starlette(routes=[Route("/{path:path}", echo, methods=["GET", "POST"])])


async def wait_found(caller: Node) -> None:
    with trio.fail_after(20):
        for kind in ("http", "inference"):
            while not await caller.find_providers(kind):  # noqa: ASYNC110 - only asking tells
                await trio.sleep(0.1)


async def test_the_commands_the_routes_and_the_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with (
        open_loopback(tmp_path, "router") as mesh,
        await mesh.node() as provider,
        await mesh.node() as caller,
        provider.serve("http", "docs", documents()),
        provider.serve("inference", "llm", Provider("model", ("small",)).app),
        serve_local_api(caller, LocalConfig(tmp_path / "node.sock")),
        httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(uds=str(tmp_path / "node.sock")), timeout=20) as http,
    ):
        await wait_found(caller)
        peer = str(provider.peer)
        for line in COMMANDS:
            given = curl().parse_args(shlex.split(line.replace("PEER", peer)))
            headers = dict(text.split(": ", 1) for text in given.H)
            answer = await http.request("POST" if given.d else "GET", given.url, content=given.d, headers=headers)
            assert answer.status_code == 200, line
            if "/http/docs/" in line:
                assert answer.text.startswith(f"{'POST' if given.d else 'GET'} /http/docs/")
        for route in ROUTES:
            path = route.replace("{peer}", peer).replace("{type}/{name}/…", "http/docs/x")
            assert (await http.get(f"http://node{path}")).status_code != 404, route
        capsys.readouterr()
        await local_models.main(str(tmp_path / "node.sock"), "small", "hi")
        assert capsys.readouterr().out == "Hello, world\n"
        assert set(TOOLS) == set(NodeTools(caller, MeshDiscovery(caller)).tools)


def test_what_was_read_is_all_there() -> None:
    assert (len(COMMANDS), len(ROUTES), len(TOOLS)) == (9, 13, 6)
    assert set(re.findall(r"`(--[\w-]+)`", TEXT)) <= {name for option in command.params for name in option.opts}


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!https?:)([^)#]+)", TEXT))))
def test_a_link_leads_somewhere(link: str) -> None:
    assert (DOCS / link).exists()
