"""What a router takes of agents: the options of `agentmesh router` for their connections, and what they come to."""

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

import attrs
import click

from agentmesh.cli.params import duration, secret_file, with_options
from agentmesh.pool.router.ingress import IngressConfig
from agentmesh.pool.router.limits import MAX_CONNECTIONS_PER_AGENT, PoolLimits
from agentmesh.pool.router.remotes import RemotePolicy
from agentmesh.router.config import AgentsConfig

F = TypeVar("F", bound=Callable[..., Any])

DEFAULTS, LIMITS = AgentsConfig(), PoolLimits()


def _checked(_: click.Context, __: click.Parameter, dsn: str | None) -> str | None:
    """Refuse now what names no store. What reads it is imported only for that: it brings the libraries of databases."""
    if dsn is not None:
        try:
            importlib.import_module("agentmesh.pool.registry.dsn").parse_registry_dsn(dsn)
        except ValueError as exc:
            raise click.BadParameter(str(exc)) from exc
    return dsn


def _count(flag: str, default: int, help: str, most: int | None = None) -> Callable[[F], F]:
    return click.option(flag, type=click.IntRange(0, most), default=default, show_default=True, help=help)


OPTIONS = (
    click.option(
        "--agent-registry",
        metavar="DSN",
        envvar="AGENTMESH_AGENT_REGISTRY",
        show_envvar=True,
        callback=_checked,
        help="Where routers tell each other which agents are connected to them: postgresql://, mysql://, mariadb:// or "
        "etcd://, or a file of SQLite. Without it, a router opens streams on its own connections only.",
    ),
    click.option(
        "--agent-registry-path",
        type=secret_file,
        metavar="FILE",
        envvar="AGENTMESH_AGENT_REGISTRY_PATH",
        show_envvar=True,
        callback=_checked,
        help="A file with that URL, for one with a password in it.",
    ),
    _count(
        "--max-connections-per-agent",
        LIMITS.max_connections_per_agent,
        "Connections of one agent, over all its processes; with a registry, over all routers.",
        MAX_CONNECTIONS_PER_AGENT,
    ),
    _count(
        "--max-connections-per-token", LIMITS.max_connections_per_token, "Those made with one credential; 0: no limit."
    ),
    _count("--max-connections-per-node", LIMITS.max_connections_per_node, "Those of all agents; 0: no limit."),
    click.option(
        "--registrations-per-second",
        type=click.FloatRange(0),
        default=LIMITS.registrations_per_second,
        show_default=True,
        help="New connections with one credential, in the long run; 0: no limit.",
    ),
    _count(
        "--max-streams-per-connection",
        LIMITS.max_streams_per_connection,
        "Streams on one connection of an agent; 0: no limit.",
    ),
    _count("--max-streams-per-agent", LIMITS.max_streams_per_agent, "Streams on all of them; 0: no limit."),
    click.option(
        "--remote-policy",
        type=click.Choice([policy.value for policy in RemotePolicy]),
        default=IngressConfig().remote_policy.value,
        show_default=True,
        help="Of the connections to other routers, take the least busy, or the less busy of two at random.",
    ),
    _count(
        "--local-spill-score",
        IngressConfig().local_spill_score,
        "What a stream has to cost here, in streams, for a less busy router's connection to be taken; 0: never.",
    ),
    click.option(
        "--agent-lease-ttl",
        type=duration,
        default="90s",
        show_default=True,
        help="How long the registry lists the connections of a router that is gone.",
    ),
    click.option(
        "--agent-drain-timeout",
        type=duration,
        default="30s",
        show_default=True,
        help="How long the streams of agents may go on when the router stops.",
    ),
)


def agents_options(command: F) -> F:
    """Give a command the options above; `AgentBounds` takes them all, by their names."""
    return with_options(command, OPTIONS)


@attrs.frozen(kw_only=True)
class AgentBounds:
    """What the options say."""

    agent_registry: str | None
    agent_registry_path: str | None
    max_connections_per_agent: int
    max_connections_per_token: int
    max_connections_per_node: int
    registrations_per_second: float
    max_streams_per_connection: int
    max_streams_per_agent: int
    remote_policy: str
    local_spill_score: int
    agent_lease_ttl: float
    agent_drain_timeout: float

    def config(self) -> AgentsConfig:
        """As the router takes it. Raises ValueError: they do not go together."""
        limits = PoolLimits(
            max_connections_per_agent=self.max_connections_per_agent,
            max_connections_per_token=self.max_connections_per_token,
            max_connections_per_node=self.max_connections_per_node,
            registrations_per_second=self.registrations_per_second,
            max_streams_per_connection=self.max_streams_per_connection,
            max_streams_per_agent=self.max_streams_per_agent,
        )
        return AgentsConfig(
            registry=self.agent_registry_path or self.agent_registry,
            limits=limits,
            ingress=IngressConfig(
                remote_policy=RemotePolicy(self.remote_policy), local_spill_score=self.local_spill_score
            ),
            lease_ttl=self.agent_lease_ttl,
            drain_timeout=self.agent_drain_timeout,
        )
