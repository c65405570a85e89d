"""What an agent may reach, as one word of a command line: `[PROTOCOL://][NAME@]NETWORK[:PORTS]` or
`[PROTOCOL://]NAME[:PORTS]`.

    tcp://10.0.0.0/8:22             port 22 of that network, by address or by whatever name leads there
    192.168.1.5:80,443,8000-8999    three kinds of port, any protocol
    tcp://*.lan@192.168.0.0/16:22   names below lan, as far as they lead into that network
    https://api.example.com:443     a name, as far as it leads to public addresses
    [fd00::/8]:22                   IPv6 is in brackets
    *:443                           every public address
"""

import ipaddress
import re
from typing import Any

from agentmesh.pool.agent.access import Rule
from agentmesh.pool.agent.config import ConfigError

EXAMPLE = "such as tcp://10.0.0.0/8:22"
PROTOCOLS = ("tcp", "http", "https")  # of opens that an agent serves

_SPEC = re.compile(
    r"(?:(?P<protocol>[a-z][a-z0-9-]*)://)?"
    r"(?:(?P<name>[^@\[\]/:]+)@)?"
    r"(?:\[(?P<bracketed>[0-9a-fA-F:./]+)\]|(?P<host>[^@\[\]:\s]+))"
    r"(?::(?P<ports>[0-9,-]+|\*))?"
)


def rule_of(text: str) -> Rule:
    """The rule that allows what the text says. Raises ConfigError, with an example."""
    found = _SPEC.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{text!r} is no rule; write [PROTOCOL://]NETWORK-OR-NAME[:PORTS], {EXAMPLE}")
    try:
        return Rule.read({**_protocol(found["protocol"]), **_hosts(found), **_ports(found["ports"])})
    except ConfigError as exc:
        reason = str(exc).removeprefix("agent.access: ")
        raise ConfigError(f"{text!r} is no rule: {reason}; write one {EXAMPLE}") from None


def _protocol(name: str | None) -> dict[str, Any]:
    if name is not None and name not in PROTOCOLS:
        raise ConfigError(f"the protocol is {', '.join(PROTOCOLS)}")
    return {} if name is None else {"protocols": [name]}


def _hosts(found: re.Match[str]) -> dict[str, Any]:
    host = found["bracketed"] or found["host"]
    network = _network(host)
    if found["name"] is not None:
        if network is None:
            raise ConfigError(f"{host!r} is no network for the names before the @ to lead to")
        return {"hosts": [found["name"]], "networks": [network]}
    if network is not None:
        return {"networks": [network]}
    if host == "*":
        return {}
    if host.lower().removesuffix(".") == "localhost" or host.lower().removesuffix(".").endswith(".localhost"):
        raise ConfigError(f"{host} is this machine, which is named by its addresses: 127.0.0.0/8, or [::1]")
    return {"hosts": [host]}


def _network(text: str | None) -> str | None:
    """The network that is meant, if one is: an address is one of a single address."""
    try:
        return str(ipaddress.ip_network(text or ""))
    except ValueError:
        if "/" in (text or ""):
            raise ConfigError(f"{text!r} is no network") from None
        return None


def _ports(text: str | None) -> dict[str, Any]:
    return {} if text in (None, "*") else {"ports": text.split(",")}
