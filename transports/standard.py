"""The transports that programs have, over TCP all of them."""

from agentmesh.abc import Transport
from agentmesh.transports.h2 import H2Transport
from agentmesh.transports.proxy import ProxyRules
from agentmesh.transports.tcp import TcpTransport
from agentmesh.transports.websocket import WebSocketTransport


def standard_transports(proxies: ProxyRules | None = None) -> list[Transport]:
    """TCP, WebSocket and HTTP/2.

    Args:
        proxies: what is dialled through which proxy; what the environment says now if it is None, `DIRECT` for nothing.
    Raises:
        AddressError: the environment names a proxy that is none.
    """
    proxies = ProxyRules.from_environment() if proxies is None else proxies
    return [TcpTransport(proxies=proxies), WebSocketTransport(proxies=proxies), H2Transport(proxies=proxies)]
