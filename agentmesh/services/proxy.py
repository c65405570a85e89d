"""A service that is a server of its own, behind an http or https URL."""

import functools
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import httpcore2
import trio

from agentmesh.errors import ServiceError
from agentmesh.protocols.http import Receive, Scope, Send
from agentmesh.services.answers import Answer
from agentmesh.services.headers import FORWARDED, Headers, end_to_end, relocated
from agentmesh.services.passing import Head, NoAnswerError, pass_on

CONNECT_TIMEOUT = 10.0  # seconds until a backend has accepted a connection, its TLS handshake included
SEND_TIMEOUT = 300.0  # seconds a backend may take nothing of a request that is ready for it

# `Expect` was answered by the mesh, which asks for a body as the backend takes it.
_NOT_PASSED_ON = FORWARDED | {b"host", b"expect"}


class ReverseProxy:
    """An ASGI application that asks a backend, one connection per request, streaming both ways.

    The path's bytes go through as they were sent, behind the URL's own path and without the service's prefix. Headers
    keep their order and repeats, but for hop-by-hop ones and Host, which is the URL's. A backend that cannot be
    reached, or dies before it answers, is 502; one that dies in its answer cuts the caller's stream. A caller that
    leaves cuts the connection to the backend at once.

    Args:
        url: of the backend; http or https, without a query.
        tls: how to trust an https backend; by default as the system trusts servers.
    """

    def __init__(self, url: str, tls: ssl.SSLContext | None = None) -> None:
        self._url = httpcore2.URL(url)
        self._tls = tls
        self._origin = self._url.scheme + b"://" + _authority(self._url)
        self._base = self._url.target.partition(b"?")[0].rstrip(b"/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on.

        Raises:
            ServiceError: the backend died in its answer; the caller's stream is to be cut.
        """
        try:
            stream, abort = await self._connect()
        except (OSError, trio.TooSlowError, trio.BrokenResourceError):
            await Answer(502, "backend-unreachable", f"the server of {_service(scope)} cannot be reached").send(send)
            return
        try:
            head, changed = self._head(scope), partial(self._relocated, scope)
            passing = pass_on(stream, abort, head, scope, receive, send, changed=changed, send_timeout=SEND_TIMEOUT)
            if await passing:
                await trio.aclose_forcefully(stream)
        except NoAnswerError:
            await Answer(502, "backend-failed", f"the server of {_service(scope)} gave no answer").send(send)
        except ServiceError as exc:
            raise ServiceError(f"the server of {_service(scope)} broke off its answer") from exc
        finally:
            abort()

    async def _connect(self) -> tuple[trio.abc.Stream, Callable[[], None]]:
        host, port = self._url.origin.host.decode("ascii"), self._url.origin.port
        with trio.fail_after(CONNECT_TIMEOUT):
            if self._url.scheme == b"http":
                plain = await trio.open_tcp_stream(host, port)
                return plain, partial(_cut, plain.socket)
            tls = self._tls or _system_tls()
            secured = await trio.open_ssl_over_tcp_stream(host, port, https_compatible=True, ssl_context=tls)
            below = secured.transport_stream.socket
            with ExitStack() as undo:
                undo.callback(below.close)
                await secured.do_handshake()
                undo.pop_all()
            return secured, partial(_cut, below)

    def _head(self, scope: Scope) -> Head:
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        target = (self._base + _rest(scope) or b"/") + query
        headers = [(b"Host", _authority(self._url)), *end_to_end(scope["headers"], but=_NOT_PASSED_ON)]
        return Head(scope["method"], target, headers)

    def _relocated(self, scope: Scope, headers: Headers) -> Headers:
        return relocated(end_to_end(headers), self._origin, self._base, scope["root_path"].encode())


def _cut(connection: trio.socket.SocketType) -> None:
    """End a connection at once. Closed as usual, its end would wait behind what a backend has not read."""
    if connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


def _rest(scope: Scope) -> bytes:
    """The path as it was sent, behind the part where the service is mounted."""
    mounted: int = scope["root_path"].count("/")
    parts: list[bytes] = scope["raw_path"].split(b"/", mounted + 1)
    return b"/" + parts[-1] if len(parts) == mounted + 2 else b""


def _authority(url: httpcore2.URL) -> bytes:
    host = b"[%b]" % url.host if b":" in url.host else url.host
    return host if url.port is None else b"%b:%d" % (host, url.port)


def _service(scope: Scope) -> str:
    mounted: str = scope["root_path"]
    return mounted.lstrip("/").replace("/", "://", 1)


@functools.cache
def _system_tls() -> ssl.SSLContext:
    return ssl.create_default_context()
