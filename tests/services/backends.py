"""Real servers on loopback, served over the mesh by their URLs."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import attrs
import httpx2
import trio

from agentmesh.services import Dispatcher, MeshClient2, ServiceTable, host_name
from tests.services.mesh import BOB, Mesh, open_mesh

ORIGIN = f"http://{host_name(BOB)}"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"

Handler = Callable[[trio.SocketStream], Awaitable[None]]


@attrs.define
class Backend:
    """A server on loopback that collects what it is sent."""

    port: int
    received: bytearray
    ended: trio.Event  # a connection was closed by its client


@asynccontextmanager
async def open_backend(answer: bytes | Handler = OK) -> AsyncGenerator[Backend]:
    """Answers each connection with `answer` once the head of a request is there, or hands it to `answer`."""
    backend = Backend(0, bytearray(), trio.Event())

    async def serve(stream: trio.SocketStream) -> None:
        if not isinstance(answer, bytes):
            await answer(stream)
            return
        while b"\r\n\r\n" not in backend.received:
            if not (piece := await stream.receive_some()):
                return
            backend.received += piece
        await stream.send_all(answer)

    async def serve_until_cut(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):  # by a proxy whose caller left
            await serve(stream)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve_until_cut, 0)
        backend.port = listeners[0].socket.getsockname()[1]
        yield backend
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_service(url: str) -> AsyncGenerator[Mesh]:
    """A mesh in which BOB serves `url` as http://x."""
    table = ServiceTable()
    table.register("http", "x", url)
    async with open_mesh(Dispatcher(table, lambda credential, peer, call: None)) as mesh:
        yield mesh


@asynccontextmanager
async def open_pair(answer: bytes | Handler = OK, path: str = "") -> AsyncGenerator[tuple[httpx2.AsyncClient, Backend]]:
    async with (
        open_backend(answer) as backend,
        open_service(f"http://127.0.0.1:{backend.port}{path}") as mesh,
        MeshClient2(mesh.calls, base_url=f"{ORIGIN}/http/x") as client,
    ):
        yield client, backend


async def ask(mesh: Mesh, request: bytes) -> bytes:
    stream = mesh.open_stream()
    await stream.send_all(request)
    data = b""
    while piece := await stream.receive_some():
        data += piece
    await stream.aclose()
    return data
