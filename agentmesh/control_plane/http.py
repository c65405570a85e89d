"""Requests and responses: protobuf and JSON bodies of bounded size, refusals as status codes."""

import json
from collections.abc import Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, TypeVar, cast

import betterproto2
import trio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from agentmesh.control_plane.database import StoreError
from agentmesh.control_plane.refusals import RefusedError, bad_request
from agentmesh.errors import RemoteProtocolError
from agentmesh.wire.codec import decode

PROTOBUF = "application/x-protobuf"
MAX_BODY_BYTES = 1024 * 1024
BODY_TIMEOUT = 30.0  # seconds until a body must be there
STORE_RETRY_AFTER = 2  # seconds

M = TypeVar("M", bound=betterproto2.Message)


async def read_body(request: Request) -> bytes:
    """The whole body. Raises RefusedError: 413 above MAX_BODY_BYTES, 408 when it takes too long."""
    body = bytearray()
    with trio.move_on_after(BODY_TIMEOUT) as scope:
        async with aclosing(request.stream()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is over {MAX_BODY_BYTES} bytes")
    if scope.cancelled_caught:
        raise RefusedError(HTTPStatus.REQUEST_TIMEOUT, f"the body took over {BODY_TIMEOUT:.0f} seconds")
    return bytes(body)


async def read_message(request: Request, kind: type[M]) -> M:
    """The body as a message. Raises RefusedError: 400, 408, 413, 415."""
    _expect(request, PROTOBUF)
    try:
        return decode(kind, await read_body(request))
    except RemoteProtocolError as exc:
        raise bad_request(f"the body is no {kind.__name__}") from exc


async def read_json(request: Request, fields: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    """The body as a JSON object that has these fields and no other; those not sent are absent.

    Raises:
        RefusedError: 400, 408, 413, 415.
    """
    _expect(request, "application/json")
    try:
        body = json.loads(await read_body(request))
    except (ValueError, RecursionError) as exc:
        raise bad_request("the body is no JSON") from exc
    if not isinstance(body, dict):
        raise bad_request("the body is no JSON object")
    values = cast(dict[str, Any], body)
    for name, value in sorted(values.items()):
        if name not in fields:
            raise bad_request(f"there is no field {name[:64]!r}; the fields are {', '.join(fields)}")
        if not isinstance(value, fields[name]) or isinstance(value, bool):
            raise bad_request(f"field {name} is of another type")
    return values


def protobuf(message: betterproto2.Message) -> Response:
    return Response(bytes(message), media_type=PROTOBUF)


def credential(message: betterproto2.Message) -> Response:
    """A response that nobody between us and the caller may keep."""
    return Response(bytes(message), media_type=PROTOBUF, headers={"Cache-Control": "no-store"})


def secret_json(value: object, status: HTTPStatus) -> Response:
    return JSONResponse(value, status_code=status, headers={"Cache-Control": "no-store"})


async def on_refused(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, RefusedError)
    headers = {} if exc.retry_after is None else {"Retry-After": str(exc.retry_after)}
    return PlainTextResponse(f"{exc}\n", status_code=exc.status, headers=headers)


async def on_store_error(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, StoreError)
    headers = {"Retry-After": str(STORE_RETRY_AFTER)}
    return PlainTextResponse(f"{exc}\n", status_code=HTTPStatus.SERVICE_UNAVAILABLE, headers=headers)


async def on_disconnect(_: Request, __: Exception) -> Response:
    return Response(status_code=HTTPStatus.BAD_REQUEST)  # nobody reads it


EXCEPTION_HANDLERS = {RefusedError: on_refused, StoreError: on_store_error, ClientDisconnect: on_disconnect}


def _expect(request: Request, media_type: str) -> None:
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != media_type:
        raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the body is to be {media_type}")
