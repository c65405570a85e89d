"""Requests and responses: bodies of bounded size in protobuf or JSON, refusals as status codes."""

import base64
import json
import re
from collections.abc import Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, TypeVar, cast

import betterproto2
import trio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from agentmesh.control_plane.database import StoreError
from agentmesh.control_plane.proof import Proof
from agentmesh.control_plane.refusals import RefusedError, bad_request, unauthorized
from agentmesh.errors import RemoteProtocolError
from agentmesh.wire.codec import decode
from agentmesh.wire.plain import from_plain, to_plain, unknown_field

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
MAX_BODY_BYTES = 1024 * 1024
BODY_TIMEOUT = 30.0  # seconds until a body must be there
STORE_RETRY_AFTER = 2  # seconds
NO_STORE = {"Cache-Control": "no-store"}  # nobody between us and the caller may keep the answer

_INSTANT = re.compile(r"\d{1,16}", re.ASCII)

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
    """The body as a message, in protobuf or JSON as its content type says. Raises RefusedError: 400, 408, 413, 415."""
    sent = _media_type(request)
    if sent not in (PROTOBUF, JSON):
        raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the body is to be {PROTOBUF} or {JSON}")
    body = await read_body(request)
    try:
        return decode(kind, body) if sent == PROTOBUF else from_plain(kind, _plain(body))
    except RemoteProtocolError as exc:
        raise bad_request(f"the body is no {kind.__name__}: {exc}") from exc


async def read_json(request: Request, fields: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    """The body as a JSON object that has these fields and no other; those not sent are absent.

    Raises:
        RefusedError: 400, 408, 413, 415.
    """
    values = await read_object(request)
    for name, value in sorted(values.items()):
        if name not in fields:
            raise bad_request(unknown_field(name, fields))
        if not isinstance(value, fields[name]) or (isinstance(value, bool) and bool not in fields[name]):
            raise bad_request(f"field {name} is of another type")
        if isinstance(value, str) and not all(c.isprintable() for c in value):
            raise bad_request(f"field {name} holds a control character")
    return values


async def read_object(request: Request) -> dict[str, Any]:
    """The body as a JSON object. Raises RefusedError: 400, 408, 413, 415."""
    if _media_type(request) != JSON:
        raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the body is to be {JSON}")
    body = _plain(await read_body(request))
    if not isinstance(body, dict):
        raise bad_request("the body is no JSON object")
    return cast(dict[str, Any], body)


def answer(request: Request, message: betterproto2.Message, headers: Mapping[str, str] | None = None) -> Response:
    """A message, as the caller would have it: as Accept says, else like its own body, else in protobuf."""
    if wants_json(request):
        return JSONResponse(to_plain(message), headers=headers)
    return Response(bytes(message), media_type=PROTOBUF, headers=headers)


def wants_json(request: Request) -> bool:
    """Whether the caller would rather read JSON. Of what it accepts, what comes first counts."""
    accepted = [part.partition(";")[0].strip().lower() for part in request.headers.get("accept", "").split(",")]
    known = [media_type for media_type in accepted if media_type in (JSON, PROTOBUF)]
    return (known[0] if known else _media_type(request)) == JSON


def credential(request: Request, message: betterproto2.Message) -> Response:
    """As `answer`, for what nobody may keep."""
    return answer(request, message, NO_STORE)


def secret_json(value: object, status: HTTPStatus) -> Response:
    return JSONResponse(value, status_code=status, headers=NO_STORE)


def no_content() -> Response:
    return Response(status_code=HTTPStatus.NO_CONTENT)


def bearer(request: Request, what: str) -> str:
    """The text behind `Authorization: Bearer`. Raises RefusedError (401), naming `what` is needed."""
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise unauthorized(f"{what} is needed: Authorization: Bearer …")
    return text.strip()


def bearer_credential(request: Request) -> bytes:
    """The credential in `Authorization: Bearer <base64>`. Raises RefusedError (401)."""
    return from_base64(bearer(request, "a credential"), "the credential is no base64")


def proof_in_headers(request: Request, purpose: str, refusal: str) -> Proof:
    """The proof in X-Mesh-Challenge-Ts and X-Mesh-Challenge-Sig. Raises RefusedError (401) with this text."""
    instant = request.headers.get("x-mesh-challenge-ts", "")
    if not _INSTANT.fullmatch(instant):
        raise unauthorized(refusal)
    return Proof(purpose, int(instant), from_base64(request.headers.get("x-mesh-challenge-sig", ""), refusal))


def from_base64(text: str, refusal: str) -> bytes:
    """Of either alphabet, padded or not. Raises RefusedError (401) with this text."""
    unpadded = text.rstrip("=").translate(str.maketrans("+/", "-_"))
    try:
        return base64.b64decode(unpadded + "=" * (-len(unpadded) % 4), altchars=b"-_", validate=True)
    except ValueError as exc:
        raise unauthorized(refusal) from exc


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


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _plain(body: bytes) -> object:
    try:
        found: object = json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise bad_request("the body is no JSON") from exc
    return found
