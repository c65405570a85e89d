"""How operators ask a router: requests to its application, and a listener that hears events as they are sent."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import attrs
import httpx
import trio

from agentmesh.pool.admin_client import PREFIX
from agentmesh.protocols.http import ASGIApp
from agentmesh.router import Router
from agentmesh.router.agents.api import AgentsApi


def api_of(router: Router) -> ASGIApp:
    app: ASGIApp = AgentsApi(router.agents, router.membership.wall_clock).app()
    return app


async def ask(app: ASGIApp, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    """One request. The path begins behind that of the agents, unless it is whole."""
    url = path if path.startswith("/api") or path.startswith("/debug") else PREFIX + path
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
        return await client.request(method, url, headers=headers)


async def shown(app: ASGIApp, path: str = "") -> Any:
    """What is answered when all is well."""
    answer = await ask(app, path)
    assert answer.status_code == 200, answer.text
    return answer.json()


@attrs.define
class Hearing:
    """A listener.

    Attributes:
        started: the head of the answer.
    """

    started: Mapping[str, Any]
    _sent: trio.MemoryReceiveChannel[bytes]
    _leave: trio.Event
    _text: str = ""

    async def block(self) -> dict[str, str]:
        """The next block, field by field."""
        while "\n\n" not in self._text:
            self._text += (await self._sent.receive()).decode()
        block, _, self._text = self._text.partition("\n\n")
        return dict(line.split(": ", 1) for line in block.splitlines())

    async def event(self) -> tuple[str, Any]:
        """The next event: its name and its data."""
        while "data" not in (block := await self.block()):
            pass
        return block["event"], {**json.loads(block["data"]), "id": block.get("id")}

    def leave(self) -> None:
        self._leave.set()


@asynccontextmanager
async def open_hearing(app: ASGIApp, path: str = "/events", room: int = 100, **headers: str) -> AsyncGenerator[Hearing]:
    """Listen to events, with a client that takes in so many pieces before it has to read."""
    url, leave = urlsplit(PREFIX + path), trio.Event()
    scope = {
        "type": "http",
        "method": "GET",
        "path": url.path,
        "raw_path": url.path.encode(),
        "root_path": "",
        "query_string": url.query.encode(),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }
    heads, first = trio.open_memory_channel[Mapping[str, Any]](1)
    pieces, sent = trio.open_memory_channel[bytes](room)

    async def receive() -> dict[str, str]:
        await leave.wait()
        return {"type": "http.disconnect"}

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            await heads.send(message)
        else:
            await pieces.send(message["body"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(app, scope, receive, send)
        yield Hearing(await first.receive(), sent, leave)
        leave.set()
