"""`agentmesh node`."""

import logging
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import click
import trio

from agentmesh.cli.config_file import config_option
from agentmesh.cli.membership import address, enrollment, label, membership_options, router_options, run_member
from agentmesh.cli.params import bind_address, data_dir_option, duration, logging_options, metrics_option
from agentmesh.cli.program import run_program
from agentmesh.local import LocalConfig, serve_local_api
from agentmesh.membership.pages import serve_pages
from agentmesh.node import Node, NodeConfig, Reachability, run_node
from agentmesh.node.config import NODE_CONNECTIONS
from agentmesh.node.pages import node_pages
from agentmesh.runtime.config import ConnectionLimits, HostConfig
from agentmesh.services import ServiceTable
from agentmesh.types import Address

logger = logging.getLogger(__name__)

Service = tuple[str, str, str]


def service(text: str) -> Service:
    """`type/name=url`."""
    key, equals, url = text.partition("=")
    kind, slash, name = key.partition("/")
    if not equals or not slash:
        raise click.BadParameter(f"{text!r} is no TYPE/NAME=URL; write mcp/weather=http://127.0.0.1:8000")
    return kind, name, url


def checked(_: click.Context, __: click.Parameter, services: tuple[Service, ...]) -> tuple[Service, ...]:
    """Refuse now what could not be served later."""
    table = ServiceTable()
    for kind, name, url in services:
        try:
            table.register(kind, name, url)
        except ValueError as exc:
            raise click.BadParameter(str(exc)) from exc
    return services


@click.command("node")
@config_option
@membership_options
@data_dir_option("node", "the node's key and credential")
@click.option(
    "--listen",
    type=address,
    multiple=True,
    metavar="MULTIADDR",
    help="Where to listen itself; repeat it for more. Behind a NAT nothing: the routers make it reachable.",
)
@click.option(
    "--reachability",
    type=click.Choice([mode.value for mode in Reachability]),
    default=Reachability.PRIVATE.value,
    show_default=True,
    help="What to make of --listen: private tells it as it is; auto tells where the routers reach the node, and dials "
    "other members directly where they are reached too.",
)
@router_options("to be attached to")
@click.option(
    "--require-label",
    "require_labels",
    type=label,
    multiple=True,
    metavar="KEY=VALUE",
    help="Call only members with this label over HTTP; repeat it, and a member has to have them all.",
)
@click.option(
    "--monitor-interval",
    type=duration,
    default="1m",
    show_default=True,
    help="How often to look for routers while some are missing; the first looks come sooner.",
)
@click.option(
    "--ready-timeout",
    type=duration,
    default="10s",
    show_default=True,
    help="How long it waits for a first router before it serves; it goes on trying all the same.",
)
@click.option(
    "--idle-timeout",
    type=duration,
    default="5m",
    show_default=True,
    help="How long a session that a call was made over is kept without another; those to its routers stay.",
)
@click.option(
    "--high-watermark",
    type=click.IntRange(2),
    default=NODE_CONNECTIONS.high_watermark,
    show_default=True,
    help="Sessions above which some are closed, those to its routers never.",
)
@click.option(
    "--low-watermark",
    type=click.IntRange(1),
    default=NODE_CONNECTIONS.low_watermark,
    show_default=True,
    help="Sessions that are left then.",
)
@click.option(
    "--service",
    "services",
    type=service,
    multiple=True,
    metavar="TYPE/NAME=URL",
    callback=checked,
    help="Serve the server at URL as /TYPE/NAME; TYPE is mcp, inference, a2a, egress or http. Repeat it for more.",
)
@click.option(
    "--data-path/--no-data-path",
    default=True,
    show_default=True,
    help="Give circuits TCP connections of their own, where the router has them and is reached over TCP.",
)
@metrics_option()
@click.option(
    "--socket-path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="A Unix socket for the local API; for its owner, without a token.",
)
@click.option(
    "--bind-addr",
    metavar="HOST:PORT",
    callback=bind_address,
    help="A port for the local API; for whoever shows the token.",
)
@click.option(
    "--api-token-path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    envvar="AGENTMESH_API_TOKEN_PATH",
    show_envvar=True,
    help="The file with that token; made when it is not there. By default api-token in the data folder.",
)
@logging_options
def command(
    control_plane: str,
    token: str | None,
    jwt_path: Path | None,
    labels: tuple[tuple[str, str], ...],
    data_dir: Path,
    listen: tuple[Address, ...],
    reachability: str,
    routers: int,
    router_selector: tuple[tuple[str, str], ...],
    router_prefer: tuple[tuple[str, str], ...],
    require_labels: tuple[tuple[str, str], ...],
    monitor_interval: float,
    retry_budget: float,
    ready_timeout: float,
    idle_timeout: float,
    high_watermark: int,
    low_watermark: int,
    services: tuple[Service, ...],
    data_path: bool,
    metrics_addr: str | None,
    socket_path: Path | None,
    bind_addr: str | None,
    api_token_path: Path | None,
) -> None:
    """Run a node: a member that serves what runs beside it.

    It holds sessions to routers, and other members reach it through them. It dials through the proxy that HTTPS_PROXY
    names, but for what is in NO_PROXY.
    """
    try:
        connections = ConnectionLimits(high_watermark=high_watermark, low_watermark=low_watermark)
    except ValueError as exc:
        raise click.UsageError(str(exc), click.get_current_context()) from exc
    config = NodeConfig(
        enrollment=enrollment(control_plane, token, jwt_path, labels, retry_budget),
        state_dir=data_dir,
        listen=listen,
        reachability=Reachability(reachability),
        routers=routers,
        router_selector=dict(router_selector),
        router_prefer=dict(router_prefer),
        require_labels=dict(require_labels),
        monitor_interval=monitor_interval,
        ready_timeout=ready_timeout,
        idle_timeout=idle_timeout,
        data_path=data_path,
        host=HostConfig(connections=connections),
    )
    local = LocalConfig(socket_path, bind_addr, api_token_path or data_dir / "api-token")
    run_program(partial(_serve, config, services, metrics_addr, local))


async def _serve(
    config: NodeConfig,
    services: tuple[Service, ...],
    metrics_addr: str | None,
    local: LocalConfig,
    stop: trio.Event,
) -> None:
    async def serve(node: Node) -> None:
        async with AsyncExitStack() as serving:
            url = await serving.enter_async_context(serve_pages(node_pages(node), metrics_addr))
            if url is not None:
                logger.info("metrics", extra={"url": url})
            await serving.enter_async_context(serve_local_api(node, local))
            for kind, name, url in services:
                await serving.enter_async_context(node.serve(kind, name, url))
            logger.info("serving", extra={"peer": str(node.peer), "routers": " ".join(map(str, node.routers))})
            await stop.wait()
            logger.info("stopping")

    await run_member(run_node(config), stop, serve)
