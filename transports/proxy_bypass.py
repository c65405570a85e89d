"""Which targets are reached without the proxy: a `NO_PROXY`, as curl reads it.

urllib's reading knows no networks and cuts IPv6 addresses at their last colon; httpx's knows no networks either, and
takes `.example.com` for all names in that domain but not for the domain. So this one is our own, over `ipaddress`.
"""

import ipaddress
import re
from collections.abc import Sequence
from typing import Self

import attrs

from agentmesh.types import ascii_name

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

LOOPBACK = "localhost,127.0.0.0/8,::1,0.0.0.0,::"  # this machine itself: a proxy's loopback is another one


@attrs.frozen
class Entry:
    """One entry of the list: a network, or a name with all names below it; and its port, if it has one."""

    network: Network | None = None
    name: str = ""
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Any text is an entry; one that makes no sense matches nothing."""
        if (network := _network(text)) is not None:
            return cls(network)
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal():
            host, port = text, ""
        number = int(port) if port else None
        if (network := _network(host.removeprefix("[").removesuffix("]"))) is not None:
            return cls(network, port=number)
        return cls(name=_ascii(host.removeprefix("*").strip(".")), port=number)

    def matches(self, name: str, ips: Sequence[IpAddress], port: int) -> bool:
        """Whether it holds for a name, or for a host of these IP addresses."""
        if self.port not in (None, port):
            return False
        if self.network is not None:
            return any(ip in self.network for ip in ips)
        return not ips and f".{name}".endswith(f".{self.name}")


@attrs.frozen
class Bypass:
    """The targets that are reached without the proxy.

    Attributes:
        entries: one of them has to match.
        everything: `*`: no target is reached through the proxy.
    """

    entries: tuple[Entry, ...] = ()
    everything: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Entries with commas or space between them: `*`, host names, domains (`example.com` and `.example.com` are the
        same: that name and all below it), IP addresses and networks; each but `*` with `:port` behind it if it is to
        hold for one port, an IPv6 address in brackets then.
        """
        texts = [entry for entry in re.split(r"[\s,]+", text.lower()) if entry]
        return cls(tuple(map(Entry.parse, texts)), "*" in texts)

    def holds(self, host: str, port: int) -> bool:
        """Whether a target is in the list. Names are not looked up: a network holds only for IP addresses."""
        name, ips = host.lower().rstrip("."), _ips(host)
        return self.everything or any(entry.matches(name, ips, port) for entry in self.entries)


def _ascii(name: str) -> str:
    """As targets are named; what is no name of a host matches none however it is spelt."""
    try:
        return name if name.isascii() else ascii_name(name)
    except UnicodeError:
        return name


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _ips(host: str) -> tuple[IpAddress, ...]:
    """The IP address, and the IPv4 address that an IPv6 one stands for (`::ffff:10.0.0.1`); none for a name."""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return ()
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (ip,) if mapped is None else (ip, mapped)
