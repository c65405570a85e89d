"""What the transports over HTTP share: what their addresses say, dialling and listening, and TLS with ordinary
certificates under them.
"""

import abc
import functools
import ssl
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import attrs
import trio

from agentmesh.abc import ByteStream, Listener, Transport
from agentmesh.errors import AddressError, DialError
from agentmesh.transports.proxy import ProxyRules
from agentmesh.transports.sockets import Endpoint, Parts, connect, listen_tcp, split_endpoint
from agentmesh.types import Address, ascii_name

DEFAULT_PORTS = {"http": 80, "https": 443}


@attrs.frozen
class WebTarget:
    """What an address of HTTP says: where, and whether by TLS and to whom."""

    endpoint: Endpoint
    suffix: Parts
    server_name: str | None  # whose certificate it has to be; None without TLS

    @classmethod
    def of(cls, address: Address, plain: str, secure: str) -> "WebTarget | None":
        """Read `/<plain>`, `/<secure>`, `/tls/<plain>` or `/tls/sni/<name>/<plain>` behind a TCP address.

        Returns:
            None for an address of another transport.
        """
        split = split_endpoint(address)
        if split is None:
            return None
        endpoint, suffix = split
        if not endpoint.is_literal:
            endpoint = attrs.evolve(endpoint, host=ascii_name(endpoint.host))
        match suffix:
            case ((name, None),) if name in (plain, secure):
                return cls(endpoint, suffix, endpoint.host if name == secure else None)
            case (("tls", None), (name, None)) if name == plain:
                return cls(endpoint, suffix, endpoint.host)
            case (("tls", None), ("sni", str(server_name)), (name, None)) if name == plain:
                return cls(endpoint, suffix, ascii_name(server_name))
            case _:
                return None

    @property
    def scheme(self) -> str:
        return "http" if self.server_name is None else "https"

    @property
    def authority(self) -> str:
        """Whom a request names, for proxies that serve many: the host that the certificate is for, and the port unless
        it is the scheme's own.
        """
        named = self.server_name is not None and self.server_name != self.endpoint.host
        host = Endpoint("dns", str(self.server_name), self.endpoint.port) if named else self.endpoint
        return host.authority.removesuffix(f":{DEFAULT_PORTS[self.scheme]}")


async def verify_server(
    carrier: trio.abc.Stream, context: ssl.SSLContext, name: str, address: Address, deadline: float
) -> trio.SSLStream[trio.abc.Stream]:
    """TLS to a server whose certificate is for `name`.

    Args:
        carrier: the connection.
        context: whom to trust.
        name: the host, named in the handshake (SNI) too.
        address: what to call it in an error.
        deadline: until when, on Trio's clock.
    Raises:
        DialError: there is no TLS, or another certificate, or no answer in time.
    """
    tls = trio.SSLStream(carrier, context, server_hostname=name, https_compatible=True)
    with trio.move_on_at(deadline) as scope:
        try:
            await tls.do_handshake()
        except trio.BrokenResourceError as exc:
            raise DialError(f"no TLS to {address}: {_reason_of(exc)}") from exc
    if scope.cancelled_caught:
        raise DialError(f"no TLS to {address}: no answer in time")
    return tls


def _reason_of(exc: trio.BrokenResourceError) -> str:
    """Why a handshake failed, without the numbers of OpenSSL where people are to read it."""
    if isinstance(exc.__cause__, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {exc.__cause__.verify_message}"
    return str(exc.__cause__ or exc)


class WebTransport(Transport):
    """Dial and listen over HTTP, with or without TLS.

    Attributes:
        name: of what is spoken, for errors.
        plain, secure: the parts of an address that it takes, as of `WebTarget.of`.
        alpn: what TLS has to agree on, if anything.
    """

    name: str
    plain: str
    secure: str
    alpn: str | None = None

    def __init__(
        self,
        handshake_timeout: float,
        client_context: ssl.SSLContext | None,
        server_context: ssl.SSLContext | None,
        proxies: ProxyRules | None,
    ) -> None:
        self._handshake_timeout = handshake_timeout
        self._given_client_context = client_context
        self._server_context = server_context
        self._proxies = ProxyRules.from_environment() if proxies is None else proxies
        if server_context is not None and self.alpn is not None:
            server_context.set_alpn_protocols([self.alpn])

    def can_dial(self, address: Address) -> bool:
        target = self._target(address)
        return target is not None and target.endpoint.port > 0

    def can_listen(self, address: Address) -> bool:
        target = self._target(address)
        if target is None or not target.endpoint.is_literal:
            return False
        return target.server_name is None or self._server_context is not None

    @asynccontextmanager
    async def dial(self, address: Address) -> AsyncGenerator[ByteStream]:
        target = self._target(address)
        if target is None or not target.endpoint.port:
            raise AddressError(f"not an address to dial over {self.name}: {address}")
        async with await connect(target.endpoint, address, self._proxies) as tcp:
            deadline = trio.current_time() + self._handshake_timeout
            wire = await self._secure(tcp, target, address, deadline)
            async with self.open(wire, target, deadline, f"to {address}") as stream:
                yield stream

    @asynccontextmanager
    async def listen(self, address: Address) -> AsyncGenerator[Listener]:
        target = self._target(address)
        if target is None or not self.can_listen(address):
            raise AddressError(f"not an address to listen on over {self.name}: {address}")
        context = self._server_context if target.server_name is not None else None
        async with await listen_tcp(target.endpoint) as listener:
            yield self.listener(listener, target.suffix, context)

    @abc.abstractmethod
    def open(
        self, wire: trio.abc.Stream, target: WebTarget, deadline: float, which: str
    ) -> AbstractAsyncContextManager[ByteStream]:
        """A stream by an opening request, until the deadline on Trio's clock; closed with the block.

        Args:
            wire: the connection, be it TLS or not.
            which: "to …", for errors.
        Raises:
            DialError: the server does not take it.
        """

    @abc.abstractmethod
    def listener(self, listener: trio.SocketListener, suffix: Parts, context: ssl.SSLContext | None) -> Listener:
        """For a port that is bound. `context` is None where TLS is not spoken."""

    async def _secure(
        self, tcp: trio.abc.Stream, target: WebTarget, address: Address, deadline: float
    ) -> trio.abc.Stream:
        if target.server_name is None:
            return tcp
        tls = await verify_server(tcp, self._client_context, target.server_name, address, deadline)
        if self.alpn is not None and tls.selected_alpn_protocol() != self.alpn:
            raise DialError(f"no {self.name} stream to {address}: the server does not offer {self.name}")
        return tls

    @functools.cached_property
    def _client_context(self) -> ssl.SSLContext:
        context = self._given_client_context or ssl.create_default_context()
        if self.alpn is not None:
            context.set_alpn_protocols([self.alpn])
        return context

    def _target(self, address: Address) -> WebTarget | None:
        return WebTarget.of(address, self.plain, self.secure)
