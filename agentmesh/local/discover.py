"""`/mesh/service/discover`: providers as JSON, or one by one as server-sent events."""

import json
import math
from collections.abc import Mapping
from typing import Any

import attrs
import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agentmesh.errors import DialError
from agentmesh.local.providers import Discovery, Provider, Wanted
from agentmesh.protocols.http import Receive, Scope, Send
from agentmesh.services import SERVICE_TYPES
from agentmesh.services.labels import pairs_in

PATH = "/mesh/service/discover"
DEFAULT_LIMIT = 20
DEFAULT_TIMEOUT = 15.0  # seconds
MAX_TIMEOUT = 60.0


@attrs.frozen
class Query:
    """What is looked for. Raises ValueError for what is malformed."""

    type: str
    name: str | None
    limit: int
    offset: int
    timeout: float
    stream: bool
    wanted: Wanted

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "Query":
        if given.get("type") not in SERVICE_TYPES:
            raise ValueError(f"type is one of {', '.join(sorted(SERVICE_TYPES))}")
        timeout = float(given.get("timeout", DEFAULT_TIMEOUT))
        limit, offset = int(given.get("limit", DEFAULT_LIMIT)), int(given.get("offset", 0))
        if not math.isfinite(timeout) or timeout <= 0 or limit < 1 or offset < 0:
            raise ValueError("limit and timeout are more than 0, offset is not less")
        stream = given.get("stream", "false") not in ("", "0", "false")
        any_of, all_of = (pairs_in(given[name], name) if name in given else () for name in ("any_label", "all_labels"))
        name, wanted = given.get("name") or None, Wanted(any_of, all_of)
        return cls(given["type"], name, limit, offset, min(timeout, MAX_TIMEOUT), stream, wanted)


def shown(provider: Provider) -> dict[str, Any]:
    """A provider as JSON has it."""
    service = provider.service
    return {
        "peer_id": str(provider.peer),
        "type": service.type,
        "name": service.name,
        "local_proxy_url": provider.path,
    }


@attrs.frozen
class DiscoverPage:
    """The ASGI application."""

    discovery: Discovery

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            query = Query.of(Request(scope).query_params)
            if not query.stream:
                await (await self._whole(query))(scope, receive, send)
                return
        except ValueError as exc:
            await JSONResponse({"error": str(exc)}, 400)(scope, receive, send)
            return
        await self._stream(query, send)

    async def _whole(self, query: Query) -> Response:
        providers: list[Provider] = []

        async def keep(provider: Provider) -> None:
            providers.append(provider)
            await trio.lowlevel.checkpoint()

        try:
            with trio.move_on_after(query.timeout):
                await self.discovery.find(query.type, query.name, keep, query.wanted)
        except DialError as exc:
            return JSONResponse({"error": str(exc)}, 503)
        providers.sort(key=lambda one: (str(one.service), str(one.peer)))
        return JSONResponse([shown(one) for one in providers[query.offset : query.offset + query.limit]])

    async def _stream(self, query: Query, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        found = 0

        async def tell(provider: Provider) -> None:
            nonlocal found
            found += 1
            if query.offset < found <= query.offset + query.limit:
                await send(_event(shown(provider)))

        try:
            with trio.move_on_after(query.timeout):
                await self.discovery.find(query.type, query.name, tell, query.wanted)
        except (DialError, ValueError) as exc:
            await send(_event({"error": str(exc)}, "error"))
        await send({**_event({"found": found}, "done"), "more_body": False})


def _event(content: dict[str, Any], name: str | None = None) -> dict[str, Any]:
    lines = [f"event: {name}"] if name else []
    text = "\n".join([*lines, f"data: {json.dumps(content)}"]) + "\n\n"
    return {"type": "http.response.body", "body": text.encode(), "more_body": True}
