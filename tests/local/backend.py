"""A program beside a node, a server beside another, and the mesh between them."""

import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import attrs
import httpx2
import trio

from agentmesh.local import LocalConfig, serve_local_api
from agentmesh.node import Node
from tests.node.loopback import open_loopback

Handler = Callable[[trio.SocketStream], Awaitable[None]]


@attrs.frozen
class Beside:
    """What a program beside the caller sees.

    Attributes:
        caller: the node whose local API it uses.
        provider: another, which serves `http/x`.
        path: of the socket.
    """

    caller: Node
    provider: Node
    path: Path

    @property
    def prefix(self) -> str:
        return f"/mesh/{self.provider.peer}/http/x"

    def client(self) -> httpx2.AsyncClient:
        transport = httpx2.AsyncHTTPTransport(uds=str(self.path))
        return httpx2.AsyncClient(transport=transport, base_url="http://node", timeout=20)

    async def connect(self) -> trio.SocketStream:
        return await trio.open_unix_socket(str(self.path))

    async def ask(self, head: str, body: bytes = b"") -> bytes:
        """The whole answer to a request whose target begins behind the service's prefix, byte by byte."""
        async with await self.connect() as stream:
            await stream.send_all(head.replace("{x}", self.prefix).encode("ascii") + body)
            return await until_end(stream)


async def until_end(stream: trio.abc.ReceiveStream) -> bytes:
    received = b""
    while piece := await stream.receive_some():
        received += piece
    return received


async def until(stream: trio.abc.ReceiveStream, end: bytes) -> bytes:
    received = b""
    while end not in received:
        piece = await stream.receive_some()
        assert piece, received
        received += piece
    return received


@asynccontextmanager
async def open_beside(folder: Path, serve: Handler) -> AsyncGenerator[Beside]:
    """A control plane, a router and two nodes in this process; `serve` answers each connection to the service."""

    async def answer(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):  # by a proxy whose caller left
            if await stream.socket.recv(1, socket.MSG_PEEK):  # or it only looked whether somebody listens
                await serve(stream)

    async with trio.open_nursery() as nursery, open_loopback(folder, "router") as mesh:
        (listener,) = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        async with await mesh.node(labels={"site": "a", "zone": "x"}) as provider, await mesh.node() as caller:
            path = folder / "node.sock"
            async with (
                provider.serve("http", "x", f"http://127.0.0.1:{port}"),
                serve_local_api(caller, LocalConfig(path)),
            ):
                yield Beside(caller, provider, path)
        nursery.cancel_scope.cancel()


def is_listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
