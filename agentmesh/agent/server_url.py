"""Where an agent's router is, as a URL: what somebody is told who sets up an agent."""

import ipaddress
import re
from typing import Self
from urllib.parse import SplitResult, urlsplit

import attrs

from agentmesh.errors import AddressError
from agentmesh.pool.agent.config import ConfigError
from agentmesh.transports.websocket import AGENT_PATH
from agentmesh.types import Address

# By scheme: what stands behind the TCP port in an address, and the port when none is given.
SCHEMES = {"wss": ("/wss", 443), "ws": ("/ws", 80), "tcp": ("", None)}
EXAMPLE = "such as wss://tunnel.example.com/ws/agent/v1 or tcp://192.0.2.1:5001"

_PATH = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)+")


@attrs.frozen
class ServerUrl:
    """One place to dial: `wss://host[:port][/path]`, `ws://…` or `tcp://host:port`.

    Attributes:
        address: the same as an address. Behind it there may be one router or many.
        path: that a WebSocket server is asked for.
    """

    address: Address
    path: str = AGENT_PATH

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ConfigError: it is none. A name and a password are refused too: a credential is what an agent has."""
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as exc:
            raise ConfigError(f"server_url: {exc}; it is {EXAMPLE}") from None
        if fault := _fault_of(parts, port):
            raise ConfigError(f"server_url: {fault}; it is {EXAMPLE}")
        suffix, usual_port = SCHEMES[parts.scheme]
        kind, host = _host_of(parts.hostname or "")
        try:
            address = Address.parse(f"/{kind}/{host}/tcp/{port or usual_port}{suffix}")
        except AddressError:
            raise ConfigError(f"server_url: no host; it is {EXAMPLE}") from None
        return cls(address, parts.path if parts.path not in ("", "/") else AGENT_PATH)


def _fault_of(parts: SplitResult, port: int | None) -> str | None:
    if parts.scheme not in SCHEMES:
        return "the scheme is wss, ws or tcp"
    if parts.username is not None or parts.password is not None:
        return "a name or a password has no place in it"
    if parts.query or parts.fragment:
        return "what follows ? or # has no place in it"
    if not parts.hostname:
        return "no host"
    if port == 0 or (port is None and SCHEMES[parts.scheme][1] is None):
        return "no port"
    if parts.scheme == "tcp" and parts.path not in ("", "/"):
        return "tcp has no path"
    if parts.path and not _PATH.fullmatch(parts.path):
        return "the path is none"
    return None


def _host_of(host: str) -> tuple[str, str]:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "dns", host
    return f"ip{address.version}", str(address)
