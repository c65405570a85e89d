"""The two HTTP libraries whose clients call over the mesh, and what they call."""

from collections.abc import Callable
from typing import Any

import attrs
import httpx
import httpx2
import trio

from agentmesh.protocols.http import Receive, Scope, Send
from agentmesh.services import MeshClient, MeshClient2, host_name
from tests.services.mesh import BOB

ORIGIN = f"http://{host_name(BOB)}"
Client = Any  # httpx.AsyncClient and httpx2.AsyncClient have no common class


@attrs.frozen
class Library:
    module: Any
    client: Callable[..., Client]


LIBRARIES = [Library(httpx, MeshClient), Library(httpx2, MeshClient2)]


class Echo:
    """Answers with the body it got, and remembers what it saw."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"1"), (b"A", b"2")]})
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            more = message["more_body"]
            await send({"type": "http.response.body", "body": message["body"], "more_body": more})


async def hang(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/body":
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
    if scope["path"] == "/upload":
        await trio.sleep(50)
    while (await receive())["type"] != "http.disconnect":
        pass
