"""httpx2 over the mesh. The same as `client`, for the successor of httpx that the mcp and openai SDKs take."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, cast

import httpx2

from agentmesh.services.calls import Sends
from agentmesh.services.client_parts import Library, canonical, outgoing_of
from agentmesh.services.names import MOUNTS
from agentmesh.services.seam import Incoming

HTTPX2 = Library.of(httpx2)


class MeshClient2(httpx2.AsyncClient):
    """An `httpx2.AsyncClient` whose `http://<peer ID>.peer.mesh/<type>/<name>/...` requests go over the mesh, and, as
    a node makes it, those of `http://<name>.<type>.mesh/...` to whoever serves that.

    The same as `MeshClient` in every way but the library.

    Args:
        calls: who carries the requests.
        base_url: as for `httpx2.AsyncClient`, with a peer ID in any spelling when it is text.
        mounts: as for `httpx2.AsyncClient`, for other hosts.
        options: the other arguments of `httpx2.AsyncClient`.
    """

    def __init__(
        self,
        calls: Sends,
        *,
        base_url: httpx2.URL | str = "",
        mounts: Mapping[str, httpx2.AsyncBaseTransport | None] | None = None,
        **options: Any,
    ) -> None:
        mounted = {**(mounts or {}), **dict.fromkeys(MOUNTS, MeshTransport2(calls))}
        super().__init__(base_url=canonical(base_url), mounts=mounted, **HTTPX2.trusting(options))

    def build_request(self, method: str, url: httpx2.URL | str, **options: Any) -> httpx2.Request:
        return super().build_request(method, canonical(url), **options)


class MeshTransport2(httpx2.AsyncBaseTransport):
    """Sends each request on a mesh stream of its own. For a client that is built in another way than `MeshClient2`."""

    def __init__(self, calls: Sends) -> None:
        self._calls = calls

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        content = cast(httpx2.AsyncByteStream, request.stream)
        outgoing = outgoing_of(request, content, is_repeatable=isinstance(request.stream, httpx2.ByteStream))
        with HTTPX2.translated():
            incoming = await self._calls.send(outgoing)
        return httpx2.Response(
            incoming.status, headers=incoming.headers, stream=_Body(incoming), extensions=incoming.extensions
        )


class _Body(httpx2.AsyncByteStream):
    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(HTTPX2.parts_of(self._incoming)) as parts:
            async for part in parts:
                yield part

    async def aclose(self) -> None:
        await self._incoming.aclose()
