"""httpx over the mesh."""

from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, cast

import httpcore2
import httpx

from agentmesh.errors import AddressError
from agentmesh.services.calls import Outgoing, Sends
from agentmesh.services.names import MOUNTS, canonical_url
from agentmesh.services.seam import Incoming

ERRORS: Mapping[type[Exception], type[httpx.TransportError]] = {
    httpcore2.ConnectTimeout: httpx.ConnectTimeout,
    httpcore2.ReadTimeout: httpx.ReadTimeout,
    httpcore2.WriteTimeout: httpx.WriteTimeout,
    httpcore2.ReadError: httpx.ReadError,
    httpcore2.WriteError: httpx.WriteError,
    httpcore2.LocalProtocolError: httpx.LocalProtocolError,
    httpcore2.RemoteProtocolError: httpx.RemoteProtocolError,
    httpcore2.UnsupportedProtocol: httpx.UnsupportedProtocol,
}


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
        super().__init__(base_url=_canonical(base_url), mounts=mounted, **options)

    def build_request(self, method: str, url: httpx.URL | str, **options: Any) -> httpx.Request:
        return super().build_request(method, _canonical(url), **options)


class MeshTransport(httpx.AsyncBaseTransport):
    """Sends each request on a mesh stream of its own. For a client that is built in another way than `MeshClient`."""

    def __init__(self, calls: Sends) -> None:
        self._calls = calls

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        outgoing = Outgoing(
            request.method,
            request.url.scheme,
            request.url.host,
            request.url.port,
            request.url.raw_path,
            request.headers.raw,
            cast(httpx.AsyncByteStream, request.stream),
            request.extensions,
            isinstance(request.stream, httpx.ByteStream),
        )
        with _translated():
            incoming = await self._calls.send(outgoing)
        return httpx.Response(
            incoming.status, headers=incoming.headers, stream=_Body(incoming), extensions=incoming.extensions
        )


class _Body(httpx.AsyncByteStream):
    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translated():
            async with aclosing(self._incoming.parts()) as parts:
                async for part in parts:
                    yield part

    async def aclose(self) -> None:
        await self._incoming.aclose()


def _canonical(url: httpx.URL | str) -> httpx.URL | str:
    return canonical_url(url) if isinstance(url, str) else url


@contextmanager
def _translated() -> Generator[None]:
    try:
        yield
    except tuple(ERRORS) as exc:
        mapped = next(to for of, to in ERRORS.items() if isinstance(exc, of))
        raise mapped(str(exc)) from exc
    except AddressError as exc:
        raise httpx.InvalidURL(str(exc)) from exc
