"""httpx over the mesh."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, cast

import httpx

from agentmesh.services.calls import Sends
from agentmesh.services.client_parts import Library, canonical, outgoing_of
from agentmesh.services.names import MOUNTS
from agentmesh.services.seam import Incoming

HTTPX = Library.of(httpx)


class MeshClient(httpx.AsyncClient):
    """An `httpx.AsyncClient` whose `http://<peer ID>.peer.mesh/<type>/<name>/...` requests go over the mesh, and, as
    a node makes it, those of `http://<name>.<type>.mesh/...` to whoever serves that.

    Other hosts are reached over the network as ever. A peer ID may be spelt in base58 wherever a URL is given as text;
    in an `httpx.URL` it must be `PeerId.dns_label`, since parsing lower-cases it.

    What comes back when a call fails:
        502 unreachable, 503 not connected to the mesh, 403 or 503 refused by the peer before HTTP: answers made here.
        400, 401, 403, 404 and 502: answers of the peer's mesh. Both kinds carry an X-Mesh-Error header; an answer
        without it is the service's own. ConnectTimeout, ReadTimeout, WriteTimeout, ReadError, WriteError,
        RemoteProtocolError: the call broke in the middle. InvalidURL: the host is no peer ID.
    Cancellation: safe; the provider learns at once that its caller left.

    Args:
        calls: who carries the requests.
        base_url: as for `httpx.AsyncClient`, with a peer ID in any spelling when it is text.
        mounts: as for `httpx.AsyncClient`, for other hosts.
        options: the other arguments of `httpx.AsyncClient`.
    """

    def __init__(
        self,
        calls: Sends,
        *,
        base_url: httpx.URL | str = "",
        mounts: Mapping[str, httpx.AsyncBaseTransport | None] | None = None,
        **options: Any,
    ) -> None:
        mounted = {**(mounts or {}), **dict.fromkeys(MOUNTS, MeshTransport(calls))}
        super().__init__(base_url=canonical(base_url), mounts=mounted, **HTTPX.trusting(options))

    def build_request(self, method: str, url: httpx.URL | str, **options: Any) -> httpx.Request:
        return super().build_request(method, canonical(url), **options)


class MeshTransport(httpx.AsyncBaseTransport):
    """Sends each request on a mesh stream of its own. For a client that is built in another way than `MeshClient`."""

    def __init__(self, calls: Sends) -> None:
        self._calls = calls

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        content = cast(httpx.AsyncByteStream, request.stream)
        outgoing = outgoing_of(request, content, is_repeatable=isinstance(request.stream, httpx.ByteStream))
        with HTTPX.translated():
            incoming = await self._calls.send(outgoing)
        return httpx.Response(
            incoming.status, headers=incoming.headers, stream=_Body(incoming), extensions=incoming.extensions
        )


class _Body(httpx.AsyncByteStream):
    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(HTTPX.parts_of(self._incoming)) as parts:
            async for part in parts:
                yield part

    async def aclose(self) -> None:
        await self._incoming.aclose()
