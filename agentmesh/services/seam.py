"""The one seam between HTTP and byte streams, on the caller's side.

httpcore2 speaks HTTP/1.1 over anything that is an `AsyncNetworkStream`. `SeamStream` makes one of any Trio stream, and
`exchange` sends one request over it. httpx, httpx2 and the reverse proxy are thin adapters above these two.
"""

import math
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import ExitStack, aclosing
from typing import Any, Self, cast

import attrs
import httpcore2
import trio

from agentmesh.errors import RejectedError

CLOSE_TIMEOUT = 5.0  # seconds a finished exchange may take to close its stream

Headers = list[tuple[bytes, bytes]]


class SeamStream(httpcore2.AsyncNetworkStream):
    """A stream that carries one HTTP exchange.

    Args:
        stream: the bytes; owned from now on.
        abort: cuts `stream` at once, without waiting; does nothing to a closed one. An exchange that is closed before
            it is over is cut, so that the other side learns that its caller left.

    `read` lets a RejectedError through as it is: the peer refused the stream, so no answer is on its way.
    """

    def __init__(self, stream: trio.abc.Stream, abort: Callable[[], None]) -> None:
        self._stream = stream
        self._finished = False
        self.abort = abort

    def finish(self) -> None:
        """The exchange is over: closing the stream need not cut it."""
        self._finished = True

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 (httpcore2 asks so)
        try:
            with trio.fail_after(math.inf if timeout is None else timeout):
                return bytes(await self._stream.receive_some(max_bytes))
        except RejectedError:
            raise
        except trio.TooSlowError as exc:
            raise httpcore2.ReadTimeout(f"nothing was received for {timeout} s") from exc
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            raise httpcore2.ReadError(str(exc)) from exc

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        if not buffer:
            return
        try:
            with trio.fail_after(math.inf if timeout is None else timeout):
                await self._stream.send_all(buffer)
        except trio.TooSlowError as exc:
            raise httpcore2.WriteTimeout(f"the other side took nothing for {timeout} s") from exc
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            # httpcore2 then looks whether an answer came all the same.
            raise httpcore2.WriteError(str(exc)) from exc

    async def aclose(self) -> None:
        if not self._finished:
            self.abort()
        with trio.move_on_after(CLOSE_TIMEOUT):
            await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Self:
        raise httpcore2.UnsupportedProtocol("this stream is secured below HTTP already")

    def get_extra_info(self, info: str) -> Any:
        return None


@attrs.frozen
class Incoming:
    """An answer whose body is still arriving. Whoever has it closes it."""

    status: int
    headers: Headers
    extensions: dict[str, Any]
    _response: httpcore2.Response
    _stream: SeamStream | None

    async def parts(self) -> AsyncGenerator[bytes]:
        """The body. Raises httpcore2.ReadError, ReadTimeout or RemoteProtocolError when it breaks off."""
        # Not aiter_stream: who stops in the middle may go on later, as the openai SDK does to drain an answer.
        stream = cast("AsyncIterable[bytes]", self._response.stream)
        async with aclosing(cast("AsyncGenerator[bytes]", aiter(stream))) as parts:
            async for part in parts:
                yield part
        if self._stream is not None:
            self._stream.finish()

    async def aclose(self) -> None:
        """Close the stream; cut it when the body was not read to its end, or when cancelled."""
        try:
            await self._response.aclose()
        finally:
            if self._stream is not None:
                self._stream.abort()


async def exchange(stream: SeamStream, request: httpcore2.Request) -> Incoming:
    """Send `request`, whole, and wait for the head of its answer. One request per stream.

    Raises:
        httpcore2.ReadError, WriteError, ReadTimeout, WriteTimeout, LocalProtocolError, RemoteProtocolError: no answer.
        RejectedError: the peer refused the stream.
    Cancellation and errors: the stream is cut.
    """
    with ExitStack() as undo:
        undo.callback(stream.abort)  # httpcore2 leaves it open when it is cancelled before its first byte
        connection = httpcore2.AsyncHTTP11Connection(request.url.origin, stream)
        response = await connection.handle_async_request(request)
        undo.pop_all()
    extensions = cast("dict[str, Any]", response.extensions)  # pyright: ignore[reportUnknownMemberType]
    return Incoming(response.status, response.headers, extensions, response, stream)
