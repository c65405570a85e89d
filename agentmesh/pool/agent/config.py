"""How an agent is to be connected, as its configuration says it."""

import math
import re
from collections.abc import Mapping, Set
from typing import Any, Self, cast

import attrs

AGENT_LABEL = "agent"  # of a credential: whose process its bearer is
MAX_CONNECTIONS = 512

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

# What this is not, and what to say to somebody who asks for it.
NOT_OFFERED: Mapping[str, str] = {
    "server_urls": "an agent has one server_url; routers behind it are found by dialling it again",
    "stream_migration": "a stream stays on the connection that it was opened on",
    "migrate_streams": "a stream stays on the connection that it was opened on",
    "stream_splitting": "a stream is not split over connections",
    "split_streams": "a stream is not split over connections",
    "group": "there are no groups of agents: processes share one id",
    "agent_group": "there are no groups of agents: processes share one id",
    "children": "there are no agents below an agent: processes share one id",
    "udp_listener": "there is no public UDP listener",
    "exec": "an agent runs no commands for others",
    "remote_commands": "an agent runs no commands for others",
}


class ConfigError(ValueError):
    """A configuration that means nothing, or asks for what there is not. The text names the key."""


@attrs.frozen(kw_only=True)
class ConnectionsConfig:
    """`agent.connections`. The defaults are one connection, as ever.

    Raises:
        ConfigError: the numbers contradict each other.
    """

    min: int = 1
    max: int = 1
    """At most 512, and never more than the router takes."""
    high_watermark: int = 16
    """Streams on any connection from which another is wanted."""
    low_watermark: int = 2
    """Streams on a connection up to which it is not needed."""
    evaluation_interval: float = 10.0
    """Seconds between two looks."""
    cooldown: float = 30.0
    """Seconds after a change in which nothing is taken away."""

    def __attrs_post_init__(self) -> None:
        if not 1 <= self.min <= self.max <= MAX_CONNECTIONS:
            raise ConfigError(
                f"connections: min is {self.min} and max {self.max}: 1 <= min <= max <= {MAX_CONNECTIONS} does not hold"
            )
        if not 0 <= self.low_watermark < self.high_watermark:
            raise ConfigError("connections: low_watermark is not below high_watermark")
        if not (0 < self.evaluation_interval < math.inf and 0 <= self.cooldown < math.inf):
            raise ConfigError("connections: evaluation_interval is above 0 and cooldown not below it")

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """Raises ConfigError: an unknown key, or a value that is none."""
        check_keys(values, {field.name for field in attrs.fields(cls)}, "agent.connections.")
        counts = ("min", "max", "high_watermark", "low_watermark")
        durations = ("evaluation_interval", "cooldown")
        read = {name: _count(values[name], name) for name in counts if name in values}
        times = {name: _seconds(values[name], name) for name in durations if name in values}
        return cls(**{**read, **times})  # type: ignore[arg-type]


@attrs.frozen(kw_only=True)
class AgentConfig:
    """`agent`.

    Attributes:
        id: the identity that all its processes share.
        server_url: where its router is dialled; there is one. "" leaves it to the mesh's own list of routers.
        instance_id: of this process; "" has one made and kept.
    """

    id: str
    server_url: str = ""
    instance_id: str = ""
    connections: ConnectionsConfig = ConnectionsConfig()

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """Raises ConfigError: an unknown key, one that asks for what there is not, or a value that is none."""
        check_keys(values, {field.name for field in attrs.fields(cls)}, "agent.")
        texts = {name: values[name] for name in ("id", "server_url", "instance_id") if name in values}
        for name, text in texts.items():
            if not isinstance(text, str):
                raise ConfigError(f"agent.{name} is one text")
        if not texts.get("id"):
            raise ConfigError("agent.id has to be there")
        connections: object = values.get("connections", {})
        if not isinstance(connections, Mapping):
            raise ConfigError("agent.connections is no mapping")
        read = ConnectionsConfig.read(cast("Mapping[str, Any]", connections))
        return cls(connections=read, **texts)


def check_keys(values: Mapping[str, Any], known: Set[str], prefix: str) -> None:
    """Raises ConfigError: a key that is not known, or that asks for what there is not."""
    for name in values:
        if name in NOT_OFFERED:
            raise ConfigError(f"{prefix}{name}: {NOT_OFFERED[name]}")
        if name not in known:
            raise ConfigError(f"{prefix}{name} is not known")


def _count(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"agent.connections.{name} is no whole number")
    return value


def _seconds(value: object, name: str) -> float:
    """Seconds, or a text with its unit: "10s", "500ms"."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ConfigError(f"agent.connections.{name} is no duration")
    return float(found[1]) * _UNITS[found[2]]
