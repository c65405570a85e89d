"""Which addresses a router may dial for a member, and which answer belongs to which question."""

import ipaddress
from collections.abc import Sequence

from agentmesh.types import Address

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def eligible(asked: Sequence[Address], source: Address | None, *, loopback: bool = False) -> tuple[Address, ...]:
    """Those of the addresses that are of the IP address which a member's session comes from; a wildcard becomes that.

    Args:
        asked: where the member says that it listens.
        source: where its session comes from. None, or the circuit of another router, makes none of them eligible.
        loopback: whether a session that comes from the loopback counts. One that a proxy beside the router passed on
            seems to, and what listens on the loopback here is none of the member's business.
    """
    seen = None if source is None or "p2p-circuit" in source.names else ip_of(source)
    if seen is None or seen.is_unspecified or (seen.is_loopback and not loopback):
        return ()
    ours = (_at(address.without_peer(), seen) for address in asked if "p2p-circuit" not in address.names)
    return tuple(dict.fromkeys(address for address in ours if address is not None))


def stands_for(asked: Address, answered: Address) -> bool:
    """Whether a router that was asked for the one may have reached the other: they are the same, but for a wildcard."""
    want, have = ip_of(asked), ip_of(answered)
    if want is None or have is None or have.is_unspecified:
        return False
    same = want == have or (want.is_unspecified and want.version == have.version)
    return same and asked.without_peer().parts[1:] == answered.without_peer().parts[1:]


def ip_of(address: Address) -> Ip | None:
    """The IP address that an address begins with, if it begins with one."""
    name, value = address.parts[0]
    if name not in ("ip4", "ip6") or value is None:
        return None
    ip = ipaddress.ip_address(value)
    return (ip.ipv4_mapped or ip) if isinstance(ip, ipaddress.IPv6Address) else ip


def _at(address: Address, seen: Ip) -> Address | None:
    """The address as the router dials it, if it may."""
    ip = ip_of(address)
    if ip is None or ip.version != seen.version or not (ip == seen or ip.is_unspecified):
        return None
    return Address(((f"ip{seen.version}", str(seen)), *address.parts[1:]))
