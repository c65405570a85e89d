"""`/mcp`: a server of the Model Context Protocol, over streamable HTTP without sessions: one answer to each request."""

import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, cast

import attrs
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agentmesh.local.tools import FAULTS, Tool, result_of
from agentmesh.protocols.http import Receive, Scope, Send

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")  # of the protocol; the first is said to whoever knows none
MAX_BODY_BYTES = 4 * 1024 * 1024

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602


class RpcError(Exception):
    """An answer of JSON-RPC that is an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@attrs.frozen
class McpEndpoint:
    """The ASGI application.

    Args:
        tools: by name.
    """

    tools: Mapping[str, Tool]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._answer(Request(scope, receive))
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.method != "POST":
            return Response(status_code=405, headers={"Allow": "POST"})
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                return Response(status_code=413)
        number: Any = None
        try:
            message = _parsed(bytes(body))
            if "id" not in message:
                return Response(status_code=202)  # a notification, or an answer to what was never asked
            number = message["id"]
            result = await self._result(message.get("method"), message.get("params") or {})
        except RpcError as exc:
            error = {"code": exc.code, "message": str(exc)}
            status = 400 if exc.code in (PARSE_ERROR, INVALID_REQUEST) else 200
            return JSONResponse({"jsonrpc": "2.0", "id": number, "error": error}, status)
        return JSONResponse({"jsonrpc": "2.0", "id": number, "result": result})

    async def _result(self, method: object, params: object) -> dict[str, Any]:
        if not isinstance(params, dict):
            raise RpcError(INVALID_PARAMS, "params is no object")
        given = cast("dict[str, Any]", params)
        match method:
            case "initialize":
                return _hello(given)
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [tool.shown for tool in self.tools.values()]}
            case "tools/call":
                return await self._call(given)
            case _:
                raise RpcError(NO_METHOD, f"no method {method!r}")

    async def _call(self, params: dict[str, Any]) -> dict[str, Any]:
        tool = self.tools.get(str(params.get("name")))
        if tool is None:
            raise RpcError(INVALID_PARAMS, f"no tool {params.get('name')!r}")
        arguments: object = params.get("arguments") or {}
        if not isinstance(arguments, dict):
            raise RpcError(INVALID_PARAMS, "arguments is no object")
        given = cast("dict[str, Any]", arguments)
        if missing := [name for name in tool.required if name not in given]:
            raise RpcError(INVALID_PARAMS, f"missing: {', '.join(missing)}")
        try:
            return await tool.call(given)
        except FAULTS as exc:
            return result_of({"error": str(exc) or "it took too long"}, is_error=True)


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except ValueError as exc:
        raise RpcError(PARSE_ERROR, f"no JSON: {exc}") from exc
    if not isinstance(message, dict) or cast("dict[str, Any]", message).get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, "no single message of JSON-RPC 2.0")
    return cast("dict[str, Any]", message)


def _hello(params: dict[str, Any]) -> dict[str, Any]:
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "agentmesh", "version": version("agentmesh")},
    }
