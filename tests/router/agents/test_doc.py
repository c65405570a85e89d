"""docs/agents-api.md says what there is: paths, methods, words, events, limits."""

import re
from pathlib import Path

import pytest
from starlette.routing import Route
from trio.testing import MockClock

from agentmesh.pool.router.audit import Action
from agentmesh.router.agents.api import AgentsApi
from agentmesh.router.agents.stream import OVERFLOW
from tests.router.agents.agency import open_agency
from tests.test_security_doc import default_of, written

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "agents-api.md").read_text()
LIMITS: list[tuple[str, str, str]] = re.findall(r"^\| `([A-Z_]+)` \| `([\w.]+)` \| (\S+) \|", TEXT, re.MULTILINE)


async def test_every_path_is_there(autojump_clock: MockClock) -> None:
    async with open_agency() as agency:
        router = await agency.router("r1")
        routes = AgentsApi(router.agents, router.membership.wall_clock).app().routes
        there = {(route.path, method) for route in routes if isinstance(route, Route) for method in route.methods or ()}
        rows = re.findall(r"^\| `(/\S+)` \| (\w+) \|", TEXT, re.MULTILINE)
        assert {(path, method) for path, method in there if method != "HEAD"} == set(rows)


def test_every_word_of_a_refusal_is_there() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "agentmesh" / "router" / "agents").glob("*.py"))
    said = {"no_token", "wrong_token", *re.findall(r'HTTPStatus\.[A-Z_]+: "([a-z_]+)"', sources)}
    said |= set(re.findall(r'RefusedError\(\s*HTTPStatus\.[A-Z_]+,\s*"([a-z_]+)"', sources))
    rows = TEXT.split("| `code` |")[1].split("\n\n")[0].splitlines()[2:]
    assert set(re.findall(r"`([a-z_]+)`", " ".join(row.split("|")[1] for row in rows))) == said


def test_every_event_is_there() -> None:
    assert set(re.findall(r"^\| `([a-z_.]+)` \| [^|]+\|$", TEXT, re.MULTILINE)) >= {*Action, OVERFLOW}


@pytest.mark.parametrize(("name", "where", "default"), LIMITS)
def test_a_limit_is_as_the_document_says(name: str, where: str, default: str) -> None:
    assert written(default_of(name, where)) == default
