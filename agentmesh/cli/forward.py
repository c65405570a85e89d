"""`agentmesh forward`."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import click
import trio

from agentmesh.cli.config_file import config_option
from agentmesh.cli.membership import enrollment, membership_options, router_options, run_member
from agentmesh.cli.params import data_dir_option, duration, logging_options, quieter_logs
from agentmesh.cli.program import run_program
from agentmesh.control_plane.bind_address import parse_bind_address
from agentmesh.errors import AddressError
from agentmesh.forward import BindAddress, Forward, ForwardConfig, forward_stdio, serve_forwards
from agentmesh.node import Node, NodeConfig, TunnelTarget, run_node
from agentmesh.runtime.nursery import open_background

logger = logging.getLogger(__name__)


def target(text: str) -> TunnelTarget:
    """`tcp://host:port`."""
    try:
        return TunnelTarget.parse(text)
    except AddressError as exc:
        raise click.BadParameter(str(exc)) from exc


def listen_address(text: str) -> BindAddress:
    """`host:port`."""
    try:
        return BindAddress(*parse_bind_address(text))
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc


def pair(text: str) -> Forward:
    """`host:port=tcp://host:port`."""
    listen, equals, to = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is no LISTEN=TARGET; write 127.0.0.1:2222=tcp://db.internal:22")
    return Forward(listen_address(listen), target(to))


@click.command("forward")
@click.argument("agent")
@click.argument("to", metavar="[TARGET]", type=target, required=False)
@config_option
@click.option(
    "--listen",
    "listens",
    type=listen_address,
    multiple=True,
    metavar="HOST:PORT",
    help="A port that leads to TARGET; repeat it for more. Port 0 takes any free one.",
)
@click.option("--stdio", is_flag=True, help="Standard input and output lead to TARGET: for ssh's ProxyCommand.")
@click.option(
    "--forward",
    "pairs",
    type=pair,
    multiple=True,
    metavar="LISTEN=TARGET",
    help="A port and its own target, as in 127.0.0.1:2222=tcp://db.internal:22; repeat it for more.",
)
@click.option("--socks", type=listen_address, metavar="HOST:PORT", help="Be a SOCKS 5 proxy there.")
@click.option("--http-proxy", type=listen_address, metavar="HOST:PORT", help="Be an HTTP proxy there, for CONNECT.")
@click.option(
    "--password-path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A file with user:password, of mode 0600: the proxies ask for these.",
)
@click.option(
    "--allow-remote",
    is_flag=True,
    help="Listen also where other machines reach it, and let them in without a password.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(1),
    default=1024,
    show_default=True,
    help="How many connections it carries at once; one more is closed.",
)
@membership_options
@data_dir_option("forward", "its key and credential")
@router_options("to be attached to")
@click.option(
    "--ready-timeout",
    type=duration,
    default="10s",
    show_default=True,
    help="How long it waits for a first router before it listens; it goes on trying all the same.",
)
@logging_options
def command(
    agent: str,
    to: TunnelTarget | None,
    listens: tuple[BindAddress, ...],
    stdio: bool,
    pairs: tuple[Forward, ...],
    socks: BindAddress | None,
    http_proxy: BindAddress | None,
    password_path: Path | None,
    allow_remote: bool,
    max_connections: int,
    control_plane: str,
    token: str | None,
    jwt_path: Path | None,
    labels: tuple[tuple[str, str], ...],
    retry_budget: float,
    data_dir: Path,
    routers: int,
    router_selector: tuple[tuple[str, str], ...],
    router_prefer: tuple[tuple[str, str], ...],
    ready_timeout: float,
) -> None:
    """Lead ports of this machine to targets beside AGENT.

    TARGET is tcp://HOST:PORT as the agent sees it. Each connection gets a tunnel of its own through the mesh. Routers
    carry its bytes as they are: what is to be secret from them has to be encrypted, as ssh and TLS do.
    """
    forwards = (*pairs, *(Forward(listen, to) for listen in listens if to is not None))
    _check(to, bool(listens), stdio, bool(pairs) or socks is not None or http_proxy is not None)
    node = NodeConfig(
        enrollment=enrollment(control_plane, token, jwt_path, labels, retry_budget),
        state_dir=data_dir,
        routers=routers,
        router_selector=dict(router_selector),
        router_prefer=dict(router_prefer),
        ready_timeout=ready_timeout,
    )
    try:
        config = ForwardConfig(
            node=node,
            agent=agent,
            forwards=forwards,
            socks=socks,
            http_proxy=http_proxy,
            password_path=password_path,
            allow_remote=allow_remote,
            max_connections=max_connections,
        )
    except ValueError as exc:
        raise click.UsageError(str(exc), click.get_current_context()) from exc
    if stdio:
        quieter_logs("warning")
    run_program(partial(_serve, config, to if stdio else None))


def _check(to: TunnelTarget | None, is_listening: bool, stdio: bool, has_others: bool) -> None:
    """Refuse what makes no sense together."""
    wrong = ""
    if to is None and (is_listening or stdio):
        wrong = f"--{'stdio' if stdio else 'listen'} leads to TARGET, which is missing"
    elif to is not None and not is_listening and not stdio:
        wrong = "what leads to TARGET? Say --listen HOST:PORT, or --stdio"
    elif stdio and (is_listening or has_others):
        wrong = "--stdio goes alone"
    elif to is None and not has_others:
        wrong = "nothing to forward: say TARGET with --listen or --stdio, or --forward, --socks or --http-proxy"
    if wrong:
        raise click.UsageError(wrong, click.get_current_context())


async def _serve(config: ForwardConfig, stdio: TunnelTarget | None, stop: trio.Event) -> None:
    async def serve(node: Node) -> None:
        open_tunnel = partial(node.open_tunnel, config.agent)
        if stdio is not None:
            await _until(stop, partial(forward_stdio, open_tunnel, stdio))
            return
        async with serve_forwards(open_tunnel, config) as forwards:
            logger.info("forwarding", extra={"agent": config.agent, "routers": " ".join(map(str, node.routers))})
            await stop.wait()
            logger.info("stopping", extra={"open": forwards.forwarder.statistics().open})

    await run_member(run_node(config.node), stop, serve)


async def _until(stop: trio.Event, work: Callable[[], Awaitable[None]]) -> None:
    """Do it, unless or until `stop` is set."""
    async with open_background() as nursery:
        nursery.start_soon(_cancel_at, stop, nursery.cancel_scope)
        await work()


async def _cancel_at(stop: trio.Event, scope: trio.CancelScope) -> None:
    await stop.wait()
    scope.cancel()
