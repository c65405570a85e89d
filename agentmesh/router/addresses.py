"""Where a router that listens on every interface can be dialled: a wildcard is no address for anybody else."""

import socket
from collections.abc import Callable, Iterable, Sequence

from agentmesh.runtime.host import Host
from agentmesh.types import Address

WILDCARDS = {"0.0.0.0": ("192.0.2.1", "127.0.0.1"), "::": ("2001:db8::1", "::1")}  # somewhere afar; this machine

GetSource = Callable[[str], str | None]


def dialable(addresses: Iterable[Address], source_towards: GetSource | None = None) -> tuple[Address, ...]:
    """The addresses with each wildcard made this machine's own address: that of its default route, or the loopback's
    when it has no route.

    Args:
        addresses: where a host listens.
        source_towards: the address that this machine sends from towards another one.
    """
    source_towards = source_towards or _source_towards
    found: dict[Address, None] = {}
    for address in addresses:
        name, value = address.parts[0]
        if value in WILDCARDS:
            afar, loopback = WILDCARDS[value]
            address = Address(((name, source_towards(afar) or loopback), *address.parts[1:]))
        found[address] = None
    return tuple(found)


def addresses_of(host: Host, external: Sequence[Address]) -> Sequence[Address]:
    """Where a router is dialled: at what it is told to say, or else where it listens."""
    return external or dialable(host.addresses)


def _source_towards(afar: str) -> str | None:
    family = socket.AF_INET6 if ":" in afar else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((afar, 9))  # sends nothing: it only looks up the route
            source: str = probe.getsockname()[0]
            return source
    except OSError:
        return None
