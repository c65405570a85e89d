"""What the transports over HTTP share: what their addresses say, and TLS with ordinary certificates under them."""

import ssl

import attrs
import trio

from agentmesh.errors import DialError
from agentmesh.transports.sockets import Endpoint, Parts, split_endpoint
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
            raise DialError(f"no TLS to {address}: {exc.__cause__ or exc}") from exc
    if scope.cancelled_caught:
        raise DialError(f"no TLS to {address}: no answer in time")
    return tls
