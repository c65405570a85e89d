"""`agentmesh admin agents` against a router's admin API on loopback: what it shows and does, how it fails."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from click.testing import CliRunner, Result

from agentmesh.cli import main
from agentmesh.pool.agent.config import ConnectionsConfig
from agentmesh.router import Router
from agentmesh.router.agents.admin import serve_admin
from tests.router.agents.agency import AGENT, Agency, open_agency


def run(url: str, token_path: Path, arguments: tuple[str, ...]) -> Result:
    settings = {
        "AGENTMESH_ROUTER_ADMIN": url,
        "AGENTMESH_ROUTER_ADMIN_TOKEN_PATH": str(token_path),
        "COLUMNS": "80",
    }
    return CliRunner().invoke(main, ["admin", "agents", *arguments], env=settings, prog_name="agentmesh")


@attrs.frozen
class Office:
    """A router with an admin API, and an operator who sits before it."""

    agency: Agency
    router: Router
    url: str
    token_path: Path

    async def tried(self, *arguments: str) -> Result:
        return await trio.to_thread.run_sync(run, self.url, self.token_path, arguments)

    async def printed(self, *arguments: str) -> str:
        """What a command prints, after it did well."""
        result = await self.tried(*arguments)
        assert (result.exit_code, result.stderr) == (0, ""), result.stderr
        return result.stdout

    async def shown(self, *arguments: str) -> Any:
        return json.loads(await self.printed(*arguments, "--json"))


@asynccontextmanager
async def open_office(folder: Path) -> AsyncGenerator[Office]:
    async with open_agency() as agency:
        router = await agency.router("r1")
        async with serve_admin(
            router.agents, router.membership.wall_clock, "127.0.0.1:0", folder / "admin-token"
        ) as url:
            assert url is not None
            yield Office(agency, router, url, folder / "admin-token")


async def test_agents_are_listed_shown_and_their_connections_closed(tmp_path: Path) -> None:
    async with open_office(tmp_path) as office:
        head = (await office.printed("list")).split()
        assert head == ["agent", "online", "processes", "connections", "streams", "last", "decision", "cloned"]
        await office.agency.agent("i1", connections=ConnectionsConfig(min=2, max=2))
        listed = (await office.printed("list")).splitlines()[1]
        assert listed.split() == [AGENT, "yes", "1", "2/2", "0", "-", "-"]
        assert [one["agentId"] for one in await office.shown("list")] == [AGENT]
        view = await office.shown("show", AGENT.upper())
        table = await office.printed("show", AGENT)
        one = view["connections"][0]
        assert all(text in table for text in ("i1", one["connectionId"], one["connectionEpochDecimal"], "this one"))
        close = ("close", AGENT, one["connectionId"], "--epoch")
        stale = await office.tried(*close, str(one["connectionEpoch"] + 1))
        assert (stale.exit_code, stale.stderr) == (
            1,
            "agentmesh: the router refuses: the connection lives on in another life; nothing was closed\n",
        )
        assert await office.printed(*close, one["connectionEpochDecimal"]) == "closing\n"
        with trio.fail_after(30):
            while (await office.shown(*close, one["connectionEpochDecimal"]))["status"] != "gone":  # noqa: ASYNC110
                await trio.sleep(0.05)


async def test_events_are_told_a_line_each_until_there_are_enough(tmp_path: Path) -> None:
    async with open_office(tmp_path) as office, trio.open_nursery() as nursery:
        program = [sys.executable, "-m", "agentmesh.cli", "admin", "agents", "events", "--count", "2", "--json"]
        where = ["--router-admin", office.url, "--token-path", str(office.token_path), "--agent", AGENT]
        done: list[str] = []

        async def listen() -> None:
            process = await trio.run_process([*program, *where], capture_stdout=True)
            done.extend(process.stdout.decode().splitlines())

        with trio.fail_after(60):
            nursery.start_soon(listen)
            while not office.router.agents.events.listeners:  # noqa: ASYNC110 - seen from outside
                await trio.sleep(0.02)
            await office.agency.agent("other", agent_id="other")
            await office.agency.agent("i1", connections=ConnectionsConfig(min=2, max=2))
            while not done:  # noqa: ASYNC110 - seen from outside
                await trio.sleep(0.02)
        events = [json.loads(line) for line in done]
        assert [(one["event"], one["agentId"]) for one in events] == [("agent.connection.registered", AGENT)] * 2


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("list", "--router-admin", "ftp://h"), 2, "not an HTTP URL"),
        (("list", "--router-admin", "http://127.0.0.1:1"), 1, "does not answer"),
        (("list", "--token-path", "/nowhere"), 2, "/nowhere: No such file or directory"),
        (("close", AGENT, "c1"), 2, "Missing option '--epoch'"),
        (("show", "no agent"), 1, "the router refuses: no agent can be called so"),
        (("show", "nobody"), 0, "nobody is offline"),
    ],
)
async def test_what_goes_wrong_is_one_line(tmp_path: Path, arguments: tuple[str, ...], status: int, text: str) -> None:
    async with open_office(tmp_path) as office:
        result = await office.tried(*arguments)
        assert (result.exit_code, len(result.stderr.splitlines())) == (status, 1), result.stderr
        assert text in result.stderr


async def test_another_token_is_refused(tmp_path: Path) -> None:
    async with open_office(tmp_path) as office:
        (tmp_path / "other").write_text("another\n")
        result = await office.tried("list", "--token-path", str(tmp_path / "other"))
        assert (result.exit_code, result.stderr) == (
            1,
            "agentmesh: the router refuses: that is not the token of this router\n",
        )
