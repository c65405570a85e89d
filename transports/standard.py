"""The transports that programs have, over TCP all of them."""

import ssl
from pathlib import Path

from agentmesh.abc import Transport
from agentmesh.transports.dnsaddr import DnsaddrTransport
from agentmesh.transports.h2 import H2Transport
from agentmesh.transports.proxy import ProxyRules
from agentmesh.transports.tcp import TcpTransport
from agentmesh.transports.websocket import PATH, WebSocketTransport


def standard_transports(
    proxies: ProxyRules | None = None, *, certificate: Path | None = None, websocket_path: str = PATH
) -> list[Transport]:
    """TCP, WebSocket and HTTP/2; and addresses that DNS says, over these.

    Args:
        proxies: what is dialled through which proxy; what the environment says now if it is None, `DIRECT` for nothing.
        certificate: a PEM file with the chain and the key that `/tls/ws` and `/tls/http` are listened on with; without
            it they cannot be.
        websocket_path: what WebSocket servers are asked for.
    Raises:
        AddressError: the environment names a proxy, or a DNS server, that is none.
        OSError: no such certificate; the text names the file.
    """
    proxies = ProxyRules.from_environment() if proxies is None else proxies
    websocket, http2 = (None if certificate is None else _server_context(certificate) for _ in range(2))
    direct = [
        TcpTransport(proxies=proxies),
        WebSocketTransport(server_context=websocket, proxies=proxies, path=websocket_path),
        H2Transport(server_context=http2, proxies=proxies),
    ]
    return [*direct, DnsaddrTransport(direct)]


def _server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, password="")  # given, so that nobody is asked for one
    except ssl.SSLError as exc:
        raise OSError(f"{certificate}: not a certificate and its key, unencrypted, in PEM: {exc.reason}") from exc
    except OSError as exc:
        raise OSError(exc.errno, f"cannot read the certificate {certificate}: {exc.strerror}") from exc
    return context
