"""Where a program listens for what it forwards, and to whom."""

import ipaddress
from collections.abc import Iterator
from pathlib import Path

import attrs

from agentmesh.node import NodeConfig, TunnelTarget
from agentmesh.protocols.pool.fields import is_identifier

LOCALHOST = "localhost"


@attrs.frozen
class BindAddress:
    """A host of this machine, and a port; port 0 takes any free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine reach it. A name is not looked up; there is one that says so."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == LOCALHOST

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@attrs.frozen
class Forward:
    """A port of this machine, and the target that each of its connections leads to."""

    listen: BindAddress
    target: TunnelTarget


@attrs.frozen(kw_only=True)
class ForwardConfig:
    """What a program that forwards needs to know.

    Attributes:
        node: the member that it is.
        agent: the ID of the agent that all tunnels lead through.
        forwards: plain ports.
        socks: where it is a SOCKS 5 proxy.
        http_proxy: where it is an HTTP proxy, for CONNECT.
        password_path: a file with `user:password`, which both proxies ask for; only its owner may read it.
        allow_remote: whether it may listen where other machines reach it, without a password.
        max_connections: how many it carries at once; one more is closed.
    """

    node: NodeConfig
    agent: str
    forwards: tuple[Forward, ...] = ()
    socks: BindAddress | None = None
    http_proxy: BindAddress | None = None
    password_path: Path | None = None
    allow_remote: bool = False
    max_connections: int = attrs.field(default=1024, validator=attrs.validators.ge(1))

    def __attrs_post_init__(self) -> None:
        if not is_identifier(self.agent):
            raise ValueError(f"{self.agent[:200]!r} is no agent's ID")
        for address, has_password in self._addresses():
            if not (address.is_loopback or self.allow_remote or has_password):
                raise ValueError(
                    f"{address}: other machines may reach that; listen on 127.0.0.1, let them in (allow-remote), or, "
                    "if it is a proxy, give it a password"
                )
        if self.password_path is not None and self.socks is None and self.http_proxy is None:
            raise ValueError("a password is for the proxies, and there is none")

    def _addresses(self) -> Iterator[tuple[BindAddress, bool]]:
        yield from ((forward.listen, False) for forward in self.forwards)
        yield from ((one, self.password_path is not None) for one in (self.socks, self.http_proxy) if one is not None)
