"""The port of the admin API: for whoever has the token; and what calls it, when what answers is odd."""

import json
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from agentmesh.errors import LimitExceededError, RemoteProtocolError
from agentmesh.membership.guard import load_or_create_token
from agentmesh.pool.admin_client import PREFIX, RouterAdminError, open_router_admin
from agentmesh.router.agents.admin import admin_app, serve_admin
from tests.router.agents.agency import AGENT, open_agency
from tests.router.agents.operators import open_hearing


async def test_the_token_opens_it_and_nothing_else_does(tmp_path: Path) -> None:
    async with open_agency() as agency:
        router = await agency.router("r1")
        path = tmp_path / "admin-token"
        async with (
            serve_admin(router.agents, router.membership.wall_clock, "127.0.0.1:0", path) as url,
            httpx.AsyncClient() as client,
        ):
            assert url is not None
            token = path.read_text().strip()
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            for shown, status, word in (
                ({}, 401, "no_token"),
                ({"Authorization": f"Basic {token}"}, 401, "no_token"),
                ({"Authorization": "Bearer x"}, 403, "wrong_token"),
            ):
                for asked in (PREFIX, f"{PREFIX}/events", "/debug/invariants", "/nothing"):
                    answer = await client.get(url + asked, headers=shown)
                    assert (answer.status_code, answer.json()["code"]) == (status, word)
                    assert answer.headers["content-type"] == "application/problem+json"
                    assert (answer.headers.get("www-authenticate") == "Bearer") == (status == 401)
                    assert token not in answer.text
            answer = await client.get(url + PREFIX, headers={"Authorization": f"Bearer {token}"})
            assert (answer.status_code, answer.json()["agents"]) == (200, [])
            assert (await client.get(f"{url}/healthz")).status_code == 404
        async with serve_admin(router.agents, router.membership.wall_clock, None, tmp_path / "none") as nowhere:
            assert nowhere is None
        assert not (tmp_path / "none").exists()


async def test_a_listener_that_leaves_is_gone_and_one_that_stays_does_not_hold_the_router_up(tmp_path: Path) -> None:
    async with open_agency() as agency:
        router = await agency.router("r1")
        events, path = router.agents.events, tmp_path / "token"

        async def serve(task_status: trio.TaskStatus[str]) -> None:
            async with serve_admin(router.agents, router.membership.wall_clock, "127.0.0.1:0", path) as url:
                assert url is not None
                task_status.started(url)
                await trio.sleep_forever()

        async def listen(url: str) -> trio.SocketStream:
            host, port = url.removeprefix("http://").split(":")
            stream = await trio.open_tcp_stream(host, int(port))
            head = f"GET {PREFIX}/events HTTP/1.1\r\nHost: r\r\nAuthorization: Bearer {load_or_create_token(path)}"
            await stream.send_all(f"{head}\r\n\r\n".encode())
            heard = b""
            while b"retry:" not in heard:
                heard += await stream.receive_some()
            assert heard.startswith(b"HTTP/1.1 200")
            return stream

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                url = await nursery.start(serve)
                async with await listen(url):
                    assert events.listeners == 1
                while events.listeners:  # noqa: ASYNC110 - seen from outside
                    await trio.sleep(0.01)
                stays = await listen(url)
                nursery.cancel_scope.cancel()  # as the program does when the router has gone
            assert events.listeners == 0
            await stays.aclose()


async def test_a_program_hears_events(autojump_clock: MockClock) -> None:
    """The client's own reading, of what the router writes."""
    async with open_agency() as agency:
        router = await agency.router("r1")
        app = admin_app(router.agents, router.membership.wall_clock, "secret")
        async with open_hearing(app, authorization="Bearer secret") as hearing:
            await hearing.block()
            await agency.agent("i1")
            block = await hearing.block()
        written = "".join(f"{name}: {text}\n" for name, text in block.items()) + "\n"

        async def answer(_: httpx.Request) -> httpx.Response:
            return httpx.Response(200, content=("retry: 3000\n\n: nothing\n\n" + 3 * written).encode())

        told: list[tuple[str, Any]] = []

        def tell(name: str, said: dict[str, Any]) -> bool:
            told.append((name, said["agentId"]))
            return len(told) < wanted

        async with open_router_admin("http://router", "secret", httpx.MockTransport(answer)) as admin:
            wanted = 2
            await admin.listen(tell)
            assert told == [("agent.connection.registered", AGENT)] * 2
            wanted = 9
            with pytest.raises(RouterAdminError, match="has ended the stream"):
                await admin.listen(tell, AGENT)


@pytest.mark.parametrize(
    ("status", "content", "error", "text"),
    [
        (200, b"<html>", RemoteProtocolError, "no JSON"),
        (200, b" " * (8 * 1024 * 1024 + 1), LimitExceededError, "over"),
        (502, b"<html>", RouterAdminError, "HTTP status 502"),
        (409, b"[]", RouterAdminError, "HTTP status 409"),
        (409, json.dumps({"detail": "x\x1b[2J" + "y" * 999}).encode(), RouterAdminError, r"refuses: x \[2Jy{295}$"),
    ],
)
async def test_what_is_odd_is_told(status: int, content: bytes, error: type[Exception], text: str) -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == "Bearer secret"
        return httpx.Response(status, content=content)

    async with open_router_admin("http://router", "secret", httpx.MockTransport(answer)) as admin:
        with pytest.raises(error, match=text):
            await admin.call("GET")
        if status != 200:
            with pytest.raises(error, match=text):
                await admin.listen(lambda _, __: True)
