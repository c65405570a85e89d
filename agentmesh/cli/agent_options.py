"""The options of an agent's process, and the `agent` of its configuration file."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import attrs
import click
import yaml

from agentmesh.agent import rule_of
from agentmesh.cli.params import duration, with_options
from agentmesh.pool.agent.access import AccessPolicy, Rule
from agentmesh.pool.agent.config import MAX_CONNECTIONS, ConfigError, ConnectionsConfig, check_keys
from agentmesh.pool.agent.serving import ServingLimits

MAX_POLICY_BYTES = 1_000_000

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS = {"id": "agent-id", "server_url": "server-url", "instance_id": "instance-id"}  # by key of `agent`
CONNECTIONS = frozenset(field.name for field in attrs.fields(ConnectionsConfig))
DEFAULT, TAKEN_ON = ConnectionsConfig(), ServingLimits()


def read_agent(value: object) -> Mapping[str, object]:
    """What the `agent` of a file says, by the long names of options.

    Raises:
        ConfigError: a key that is not known, or that asks for what there is not; or a value that is none.
    """
    agent = _mapping(value, "agent")
    check_keys(agent, {*OPTIONS, "connections", "access"}, "agent.")
    connections = _mapping(agent.get("connections", {}), "agent.connections")
    check_keys(connections, CONNECTIONS, "agent.connections.")
    found: dict[str, object] = {OPTIONS[key]: _scalar(agent[key], f"agent.{key}") for key in OPTIONS if key in agent}
    for key, one in connections.items():
        found[f"connections-{key.replace('_', '-')}"] = _scalar(one, f"agent.connections.{key}")
    if "access" in agent:
        found["access-policy"] = AccessPolicy.read(agent["access"])
    return found


def _mapping(value: object, key: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key} is no mapping")
    return cast("Mapping[str, Any]", value)


def _scalar(value: object, key: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(f"{key} is one text or number")
    return str(value)


def rule(text: str) -> Rule:
    """A rule in one word."""
    try:
        return rule_of(text)
    except ConfigError as exc:
        raise click.BadParameter(str(exc)) from exc


def access_policy(given: str | AccessPolicy) -> AccessPolicy:
    """The rules in a file; or those that have been read."""
    if isinstance(given, AccessPolicy):
        return given
    try:
        with Path(given).open(encoding="utf-8") as file:
            return AccessPolicy.read(yaml.safe_load(file.read(MAX_POLICY_BYTES)))
    except OSError as exc:
        raise click.BadParameter(f"{given}: {exc.strerror}") from exc
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise click.BadParameter(f"{given}: no YAML: {' '.join(str(exc).split())}") from exc
    except ConfigError as exc:
        raise click.BadParameter(f"{given}: {exc}") from exc


def _count(name: str, default: int, help: str, least: int = 1, most: int | None = None) -> Callable[[F], F]:
    return click.option(name, type=click.IntRange(least, most), default=default, show_default=True, help=help)


OPTIONS_OF_AN_AGENT = (
    click.option(
        "--agent-id",
        required=True,
        metavar="ID",
        envvar="AGENTMESH_AGENT_ID",
        show_envvar=True,
        help="The agent that this process is one of; the control plane attests it as the label agent.",
    ),
    click.option(
        "--server-url",
        metavar="URL",
        default="",
        help="Where its router is: wss://host/ws/agent/v1, ws:// or tcp://host:port. Without it, the mesh's routers.",
    ),
    click.option(
        "--instance-id",
        metavar="ID",
        default="",
        help="This process among the agent's. Without it, one that is made at the first start and kept.",
    ),
    _count("--connections-min", DEFAULT.min, "Connections that it has at least.", most=MAX_CONNECTIONS),
    _count("--connections-max", DEFAULT.max, "Connections that it has at most.", most=MAX_CONNECTIONS),
    _count("--connections-high-watermark", DEFAULT.high_watermark, "Streams on one from which another is wanted."),
    _count("--connections-low-watermark", DEFAULT.low_watermark, "Streams up to which one is not needed.", least=0),
    click.option(
        "--connections-evaluation-interval",
        type=duration,
        default="10s",
        show_default=True,
        help="How often it looks at how many it needs.",
    ),
    click.option(
        "--connections-cooldown",
        type=duration,
        default="30s",
        show_default=True,
        help="How long after a change none is taken away.",
    ),
    click.option(
        "--allow",
        type=rule,
        multiple=True,
        metavar="RULE",
        help="What streams may reach, such as tcp://10.0.0.0/8:22 or https://api.example.com:443; repeat it for more.",
    ),
    click.option(
        "--access-policy",
        type=access_policy,
        metavar="FILE",
        help="A YAML or JSON file with rules, which come before those of --allow: what it forbids is forbidden.",
    ),
    _count("--max-streams", TAKEN_ON.max_streams, "Streams at once, over all connections; 0 for no limit.", least=0),
    _count("--max-dials", TAKEN_ON.max_dials, "Targets that are connected to at once."),
    _count("--max-pending-dials", TAKEN_ON.max_pending_dials, "Streams that may wait for that."),
)


def agent_options(command: F) -> F:
    """Give a command the options of an agent's process."""
    return with_options(command, OPTIONS_OF_AN_AGENT)
