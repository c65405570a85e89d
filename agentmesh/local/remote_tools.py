"""MCP tools of other members: as much of a client of the streamable HTTP transport as listing and calling need."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, cast

import httpx2

from agentmesh.errors import ServiceError
from agentmesh.local.asking import fetch
from agentmesh.local.providers import Provider
from agentmesh.services import MeshClient2, host_name

PROTOCOL_VERSION = "2025-11-25"
MAX_PAGES = 20  # of a list of tools
CLIENT = {"name": "agentmesh", "version": "1"}

# A service's URL is that of the endpoint itself, or of a server that has it at /mcp, as the official SDK's does.
ENDPOINTS = ("", "/mcp")


class RemoteSession:
    """A session with the MCP server behind a provider. Made by `open_session`."""

    def __init__(self, client: MeshClient2, url: str) -> None:
        self._client = client
        self._ids = count(1)
        self._headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": PROTOCOL_VERSION}
        self._url = url

    async def tools(self) -> list[dict[str, Any]]:
        """What it can do. Raises ServiceError."""
        found: list[dict[str, Any]] = []
        params: dict[str, Any] = {}
        for _ in range(MAX_PAGES):
            page = await self.ask("tools/list", params)
            found += page.get("tools", [])
            if not page.get("nextCursor"):
                break
            params = {"cursor": page["nextCursor"]}
        return found

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """What a tool gives, in MCP's words. Raises ServiceError."""
        return await self.ask("tools/call", {"name": tool, "arguments": arguments})

    async def begin(self) -> bool:
        """Whether there is an MCP server at the URL. Raises ServiceError for one that will not talk."""
        params = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": CLIENT}
        answer = await self._post({"id": 0, "method": "initialize", "params": params})
        if answer.status_code in (404, 405):
            return False
        _result(answer, 0)
        if session := answer.headers.get("mcp-session-id"):
            self._headers["Mcp-Session-Id"] = session
        await self._post({"method": "notifications/initialized"})
        return True

    async def end(self) -> None:
        """Let the server forget the session, if it keeps one."""
        if "Mcp-Session-Id" in self._headers:
            await fetch(self._client, "DELETE", self._url, headers=self._headers)

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        number = next(self._ids)
        return _result(await self._post({"id": number, "method": method, "params": params}), number)

    async def _post(self, message: dict[str, Any]) -> httpx2.Response:
        message = {"jsonrpc": "2.0", **message}
        return await fetch(self._client, "POST", self._url, json=message, headers=self._headers)


@asynccontextmanager
async def open_session(client: MeshClient2, provider: Provider) -> AsyncGenerator[RemoteSession]:
    """`async with open_session(client, provider) as session`.

    Raises:
        ServiceError: it is no MCP server, refuses, or cannot be reached.
    """
    base = f"http://{host_name(provider.peer)}/{provider.service.type}/{provider.service.name}"
    try:
        for endpoint in ENDPOINTS:
            session = RemoteSession(client, base + endpoint)
            if await session.begin():
                yield session
                await session.end()
                return
    except httpx2.HTTPError as exc:
        raise ServiceError(f"{provider.service} of {provider.peer}: {str(exc) or type(exc).__name__}") from exc
    raise ServiceError(f"{provider.service} of {provider.peer} has no MCP server")


def _result(answer: httpx2.Response, number: int) -> dict[str, Any]:
    """The result of a request, from JSON or from events. Raises ServiceError."""
    if answer.status_code != 200:
        raise ServiceError(f"answered {answer.status_code}: {answer.text.strip()[:200]}")
    for message in _messages(answer):
        if message.get("id") == number and isinstance(message.get("result"), dict):
            return cast("dict[str, Any]", message["result"])
        if message.get("id") == number and isinstance(message.get("error"), dict):
            raise ServiceError(str(message["error"].get("message", "an error without words")))
    raise ServiceError("gave no answer")


def _messages(answer: httpx2.Response) -> list[dict[str, Any]]:
    text = answer.text
    events = answer.headers.get("content-type", "").startswith("text/event-stream")
    texts = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")] if events else [text]
    found: list[Any] = []
    for one in texts:
        try:
            found.append(json.loads(one))
        except ValueError:
            continue
    return [message for message in found if isinstance(message, dict)]
