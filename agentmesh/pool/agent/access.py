"""What an agent's streams may reach: rules on protocol, host, port and network. What no rule allows is forbidden.

A name is resolved once, every address that it has is judged, and only those that passed are connected to: a name that
leads to this very machine, or to the metadata service of its cloud, leads nowhere. Addresses of such networks have to
be named by a rule's `networks`, and by one that lies within the special network: 0.0.0.0/0 means the public ones.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

import attrs

from agentmesh.pool.agent.config import ConfigError
from agentmesh.protocols.pool import Open
from agentmesh.protocols.pool.values import EVERY_PROTOCOL

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_ADDRESSES = 16  # of one name
MAX_PORT = 65535

NEVER: tuple[IPNetwork, ...] = tuple(
    map(ipaddress.ip_network, ("0.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4", "::/128", "ff00::/8"))
)
SPECIAL: tuple[IPNetwork, ...] = tuple(
    map(
        ipaddress.ip_network,
        (
            *("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
            *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
            *("::1/128", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16"),
            *("64:ff9b:1::/48", "fc00::/7", "fe80::/10", "fec0::/10"),
        ),
    )
)
_CARRIES_IPV4 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))  # NAT64, and IPv4-compatible

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)")


class TargetError(ValueError):
    """Not a host that can be meant. The text says why."""


def host_of(text: str) -> str | IPAddress:
    """The host that a target is written as: an address, or a name in lower case without its last dot.

    Raises:
        TargetError: it is neither; 127.1, 0x7f000001 and whatever else some resolver takes for an address is not.
    """
    plain = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        return _name(text)
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id:
        raise TargetError("an address with a zone")
    return address


def _name(text: str) -> str:
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if not all(_LABEL.fullmatch(label) for label in labels) or len(name) > 253:
        raise TargetError("no name of a host")
    if _NUMERIC.fullmatch(labels[-1]):
        raise TargetError("an address in a spelling that is not the usual one")
    return name


def embedded(address: IPAddress) -> tuple[IPAddress, ...]:
    """The address, and those that it is another way to: all of them have to be allowed."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    inner: list[ipaddress.IPv4Address | None] = [address.ipv4_mapped, address.sixtofour]
    if address.teredo is not None:
        inner += address.teredo
    if int(address) > 1 and any(address in network for network in _CARRIES_IPV4):
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    found = tuple(one for one in inner if one is not None)
    return found if address.ipv4_mapped is not None else (address, *found)


def special_network(address: IPAddress) -> IPNetwork | None:
    """The network of limited use that an address is in; None of a public one."""
    return next((network for network in (*NEVER, *SPECIAL) if address in network), None)


def _is_never(address: IPAddress) -> bool:
    return any(address in network for network in NEVER)


@attrs.frozen(kw_only=True)
class Rule:
    """One rule. What is left empty, anything matches; but without `networks` a rule allows public addresses only.

    Attributes:
        hosts: names, or `*.example.com` for all below one; matched against the name as it was asked for.
        ports: each from and to, both included.
    """

    allow: bool = True
    protocols: frozenset[str] = frozenset()
    hosts: tuple[str, ...] = ()
    networks: tuple[IPNetwork, ...] = ()
    ports: tuple[tuple[int, int], ...] = ()

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """Raises ConfigError: a key that is not known, or a value that is none."""
        known = {field.name for field in attrs.fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ConfigError(f"agent.access: a rule has no {unknown[0]!r}, but {', '.join(sorted(known))}")
        allow = values.get("allow", True)
        if not isinstance(allow, bool):
            raise ConfigError("agent.access: allow is true or false")
        return cls(
            allow=allow,
            protocols=frozenset(map(_protocol, _texts(values, "protocols"))),
            hosts=tuple(map(_pattern, _texts(values, "hosts"))),
            networks=tuple(map(_network, _texts(values, "networks"))),
            ports=tuple(map(_ports, _list(values, "ports"))),
        )

    def may_match(self, request: Open, names: Sequence[str]) -> bool:
        """Whether it matches, as far as can be told without an address."""
        fitting = [any(_fits(name, host) for host in self.hosts) for name in names]
        return (
            (not self.protocols or request.protocol in self.protocols)
            and (not self.ports or any(low <= request.target_port <= high for low, high in self.ports))
            and (not self.hosts or (all(fitting) if self.allow else any(fitting)))
        )

    def matches(self, address: IPAddress) -> bool:
        """Whether it matches an address, when it matches the rest."""
        if not self.allow:
            return not self.networks or any(address in network for network in self.networks)
        special = special_network(address)
        if special is None:
            return not self.networks or any(address in network for network in self.networks)
        return any(address in network and _within(network, special) for network in self.networks)


@attrs.frozen
class AccessPolicy:
    """The rules, in order: the first that matches decides. Without any, nothing is allowed."""

    rules: tuple[Rule, ...] = ()

    @classmethod
    def read(cls, values: object) -> Self:
        """Raises ConfigError: that is no list of rules."""
        if not isinstance(values, list):
            raise ConfigError("agent.access is no list")
        rules = cast("list[object]", values)
        if not all(isinstance(rule, Mapping) for rule in rules):
            raise ConfigError("agent.access: a rule is a mapping")
        return cls(tuple(Rule.read(cast("Mapping[str, Any]", rule)) for rule in rules))

    def may_ask(self, request: Open) -> bool:
        """Whether any address could be allowed: what is forbidden anyway is not resolved, and tells nobody anything.

        Raises:
            TargetError: the target is no host.
        """
        names = _names(request)
        return request.target_port > 0 and any(rule.allow and rule.may_match(request, names) for rule in self.rules)

    def permitted(self, request: Open, addresses: Sequence[IPAddress]) -> tuple[IPAddress, ...]:
        """Of the addresses of a target, those that may be connected to, in their order.

        Raises:
            TargetError: the target is no host.
        """
        names = _names(request)
        rules = [rule for rule in self.rules if rule.may_match(request, names)]
        return tuple(address for address in addresses[:MAX_ADDRESSES] if _is_allowed(rules, address))


def _is_allowed(rules: Sequence[Rule], address: IPAddress) -> bool:
    for one in embedded(address):
        decisive = next((rule for rule in rules if rule.matches(one)), None)
        if _is_never(one) or decisive is None or not decisive.allow:
            return False
    return True


def _names(request: Open) -> list[str]:
    """The names that a request goes by: that it connects to, and those that it gives to whoever answers."""
    asked = [request.target_host]
    if request.host_header:
        asked.append(_without_port(request.host_header))
    if request.tls_server_name:
        asked.append(request.tls_server_name)
    return [str(host_of(one)) for one in asked]


def _without_port(host_header: str) -> str:
    host, colon, port = host_header.rpartition(":")
    return host if colon and port.isdigit() and (":" not in host or host.endswith("]")) else host_header


def _fits(name: str, pattern: str) -> bool:
    return name.endswith(pattern[1:]) if pattern.startswith("*.") else name == pattern


def _within(network: IPNetwork, special: IPNetwork) -> bool:
    if isinstance(network, ipaddress.IPv4Network) and isinstance(special, ipaddress.IPv4Network):
        return network.subnet_of(special)
    if isinstance(network, ipaddress.IPv6Network) and isinstance(special, ipaddress.IPv6Network):
        return network.subnet_of(special)
    return False


def _list(values: Mapping[str, Any], name: str) -> Sequence[object]:
    found: object = values.get(name, [])
    if not isinstance(found, list):
        raise ConfigError(f"agent.access: {name} is no list")
    return cast("list[object]", found)


def _texts(values: Mapping[str, Any], name: str) -> list[str]:
    texts = _list(values, name)
    if not all(isinstance(text, str) and text for text in texts):
        raise ConfigError(f"agent.access: {name} is a list of texts")
    return [str(text) for text in texts]


def _protocol(text: str) -> str:
    """One that there is: a rule for another would match nothing, and one that forbids would forbid nothing."""
    if text not in EVERY_PROTOCOL:
        raise ConfigError(
            f"agent.access: protocols: there is no {text[:50]!r}, but {', '.join(sorted(EVERY_PROTOCOL))}"
        )
    return text


def _pattern(text: str) -> str:
    below = text.startswith("*.")
    try:
        host = host_of(text[2:] if below else text)
    except TargetError as exc:
        raise ConfigError(f"agent.access: hosts: {exc}") from None
    if below and not isinstance(host, str):
        raise ConfigError("agent.access: hosts: nothing is below an address")
    return f"*.{host}" if below else str(host)


def _network(text: str) -> IPNetwork:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise ConfigError(f"agent.access: networks: {text[:50]!r} is no network") from None


def _ports(value: object) -> tuple[int, int]:
    """443, or "8000-8999"."""
    parts = [value] if isinstance(value, int) and not isinstance(value, bool) else str(value).split("-")
    if not 1 <= len(parts) <= 2 or not all(str(part).isascii() and str(part).isdigit() for part in parts):
        raise ConfigError("agent.access: ports: neither a port nor two with a dash between")
    low, high = int(parts[0]), int(parts[-1])
    if not 1 <= low <= high <= MAX_PORT:
        raise ConfigError(f"agent.access: ports: from 1 to {MAX_PORT}, the lower first")
    return low, high
