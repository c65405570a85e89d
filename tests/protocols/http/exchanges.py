"""Requests as bytes, small applications, and a way to put one to the other."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from trio.testing import wait_all_tasks_blocked

from agentmesh.protocols.http import (
    ASGIApp,
    HttpLimits,
    Message,
    Receive,
    Scope,
    Send,
)
from agentmesh.protocols.http.wire import DEFAULT_LIMITS
from tests.services.mesh import MemoryStream, Mesh, open_mesh

GET = b"GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n"
START: Message = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
BODY: Message = {"type": "http.response.body", "body": b"hi"}


async def hi(scope: Scope, receive: Receive, send: Send) -> None:
    await send(START)
    await send(BODY)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200})
    more = True
    while more:
        message = await receive()
        more = message["more_body"]
        await send({"type": "http.response.body", "body": message["body"], "more_body": more})


async def read_all(stream: MemoryStream) -> bytes:
    data = b""
    while piece := await stream.receive_some():
        data += piece
    return data


async def ask(mesh: Mesh, request: bytes) -> bytes:
    """The whole answer; raises StreamResetError when it is cut."""
    stream = mesh.open_stream()
    await stream.send_all(request)
    answer = await read_all(stream)
    await stream.aclose()
    await mesh.check_idle()
    return answer


@asynccontextmanager
async def asked(app: ASGIApp, request: bytes, limits: HttpLimits = DEFAULT_LIMITS) -> AsyncGenerator[MemoryStream]:
    """A stream with a request on it, served by `app`."""
    async with open_mesh(app, limits) as mesh:
        stream = mesh.open_stream()
        await stream.send_all(request)
        await wait_all_tasks_blocked()
        yield stream
