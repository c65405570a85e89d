"""`agentmesh admin agents`: the agents of a router, as its admin API tells of them."""

import functools
import json
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import attrs
import click
import trio

from agentmesh.cli.admin_calls import show as show_table
from agentmesh.cli.params import logging_options, secret_file
from agentmesh.cli.program import errors_in_one_line, run_program
from agentmesh.pool.admin_client import RouterAdmin, open_router_admin

PAGE = 1000  # agents in one answer

F = TypeVar("F", bound=Callable[..., Any])


@attrs.frozen
class RouterCalls:
    """A router, and how its answers are shown."""

    url: str
    token: str = attrs.field(repr=False)
    as_json: bool

    def call(self, method: str, path: str = "", **query: str) -> Any:
        """One request. Raises click's errors, in one line."""

        async def main() -> Any:
            async with open_router_admin(self.url, self.token) as admin:
                return await admin.call(method, path, **query)

        with _usage_errors(), errors_in_one_line():
            return trio.run(main)

    def stay(self, work: Callable[[RouterAdmin], Awaitable[None]]) -> None:
        """Do `work` with a client until it is done, or SIGINT or SIGTERM come."""

        async def serve(stop: trio.Event) -> None:
            async with open_router_admin(self.url, self.token) as admin, trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_at, stop, nursery.cancel_scope)
                await work(admin)
                nursery.cancel_scope.cancel()

        with _usage_errors():
            run_program(serve)


async def _cancel_at(stop: trio.Event, scope: trio.CancelScope) -> None:
    await stop.wait()
    scope.cancel()


def router_command(command: F) -> F:
    """Give a command --router-admin, --token-path and --json; its first argument is a RouterCalls."""

    @click.option(
        "--router-admin",
        "url",
        default="http://127.0.0.1:9090",
        show_default=True,
        metavar="URL",
        envvar="AGENTMESH_ROUTER_ADMIN",
        show_envvar=True,
        help="URL of the router's admin API, its --admin-addr.",
    )
    @click.option(
        "--token-path",
        "token",
        type=secret_file,
        required=True,
        metavar="FILE",
        envvar="AGENTMESH_ROUTER_ADMIN_TOKEN_PATH",
        show_envvar=True,
        help="The file with its token: admin-token in the router's data folder.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
    @functools.wraps(command)
    def with_calls(url: str, token: str, as_json: bool, **arguments: Any) -> Any:
        return command(RouterCalls(url, token, as_json), **arguments)

    return with_calls  # type: ignore[return-value]


@click.group("agents")
def agents() -> None:
    """The agents of a router, and their connections."""


@agents.command("list")
@router_command
def list_agents(router: RouterCalls) -> None:
    """The agents that have connections to this router."""
    found = list[dict[str, Any]]()
    cursor: str | None = ""
    while cursor is not None:
        page = router.call("GET", limit=str(PAGE), **({"cursor": cursor} if cursor else {}))
        found += page["agents"]
        cursor = page["nextCursor"]
    columns = ("agent", "online", "processes", "connections", "streams", "last decision", "cloned")
    rows = [
        (
            one["agentId"],
            one["online"],
            one["instanceCount"],
            f"{one['healthyConnectionCount']}/{one['connectionCount']}",
            one["activeStreams"],
            _decision(one["scaling"]),
            " ".join(one["cloned"]),
        )
        for one in found
    ]
    show_table(found, columns, rows, router.as_json)


@agents.command("show")
@click.argument("agent_id", metavar="AGENT")
@router_command
def show_agent(router: RouterCalls, agent_id: str) -> None:
    """The connections of an agent, those to other routers too."""
    found = router.call("GET", f"/{quote(agent_id, safe='')}")
    columns = ("process", "connection", "epoch", "router", "healthy", "streams", "health", "rtt", "heard of", "state")
    rows = [
        (
            one["instanceId"],
            one["connectionId"],
            one["connectionEpochDecimal"],
            "this one" if one["local"] else one["serverNodeId"],
            one["healthy"],
            one["activeStreams"],
            one["healthScore"],
            _seconds(one["rttSeconds"]),
            _seconds(one["sinceHeartbeatSeconds"]),
            one["state"],
        )
        for one in found["connections"]
    ]
    show_table(found, columns, rows, router.as_json)
    if not found["online"]:
        click.echo(f"{found['agentId']} is offline: no process of it is connected and healthy.", err=True)
    if found["registry"] == "unavailable":
        click.echo("The registry does not answer: connections to other routers are not shown.", err=True)


@agents.command("close")
@click.argument("agent_id", metavar="AGENT")
@click.argument("connection_id", metavar="CONNECTION")
@click.option("--epoch", type=click.IntRange(0), required=True, help="Which life of it, as `show` tells.")
@router_command
def close(router: RouterCalls, agent_id: str, connection_id: str, epoch: int) -> None:
    """Close a connection of an agent, at whichever router it is. Its streams have some seconds to end."""
    path = f"/{quote(agent_id, safe='')}/connections/{quote(connection_id, safe='')}"
    said = router.call("DELETE", path, connectionEpoch=str(epoch))
    if router.as_json:
        show_table(said, (), (), as_json=True)
    else:
        click.echo(said["status"])


@agents.command("events")
@click.option("--agent", "agent_id", default="", metavar="AGENT", help="Only those of this agent.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after so many.")
@router_command
@logging_options
def events(router: RouterCalls, agent_id: str, count: int | None) -> None:
    """What befalls agents' connections, as it happens: an event a line, until it is interrupted."""
    told = 0

    def tell(name: str, said: dict[str, Any]) -> bool:
        nonlocal told
        told += 1
        click.echo(json.dumps({"event": name, **said}, ensure_ascii=False) if router.as_json else _line(name, said))
        return count is None or told < count

    router.stay(lambda admin: admin.listen(tell, agent_id))


def _line(name: str, said: dict[str, Any]) -> str:
    names = ("agentId", "instanceId", "connectionId", "connectionEpochDecimal", "serverNodeId", "reason", "missed")
    words = [f"{one}={said[one]}" for one in names if said.get(one)]
    more = [f"count={said['count']}"] if said.get("count", 1) != 1 else []
    return " ".join([str(said.get("at", "-")), name, *words, *more])


def _decision(scaling: dict[str, Any] | None) -> str:
    return f"{scaling['decision']}: {scaling['reason']}" if scaling else ""


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}s"


@contextmanager
def _usage_errors() -> Generator[None]:
    """A URL that is none was typed wrong."""
    try:
        yield
    except ValueError as exc:
        raise click.UsageError(str(exc), click.get_current_context()) from exc
