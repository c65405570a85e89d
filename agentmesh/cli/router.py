"""`agentmesh router`."""

import logging
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click
import trio

from agentmesh.cli.config_file import config_option
from agentmesh.cli.membership import address, enrollment, membership_options, run_member
from agentmesh.cli.params import bind_address, data_dir_option, duration, logging_options, metrics_option
from agentmesh.cli.program import STOP_TIMEOUT, run_program
from agentmesh.cli.router_agents import AgentBounds, agents_options
from agentmesh.cli.router_bounds import Bounds, bounds_options
from agentmesh.membership.pages import serve_pages
from agentmesh.router import Router, RouterConfig, open_router
from agentmesh.router.agents.admin import serve_admin
from agentmesh.router.config import DEFAULT_LISTEN
from agentmesh.router.pages import router_pages
from agentmesh.runtime.config import HostConfig
from agentmesh.runtime.nursery import open_background
from agentmesh.types import Address

logger = logging.getLogger(__name__)

ADMIN_TOKEN_FILE = "admin-token"

Admin = tuple[str | None, Path]  # where the admin API is served, if anywhere, and the file with its token


@click.command("router")
@config_option
@membership_options
@data_dir_option("router", "the router's key and credential")
@click.option(
    "--listen",
    type=address,
    multiple=True,
    default=tuple(map(str, DEFAULT_LISTEN)),
    show_default=True,
    metavar="MULTIADDR",
    help="Where to listen; repeat it for more. /ws behind a TCP port makes it a WebSocket, /http HTTP/2.",
)
@click.option(
    "--external-addr",
    type=address,
    multiple=True,
    metavar="MULTIADDR",
    help="What members are told to dial instead of where it listens; repeat it for more.",
)
@click.option(
    "--tls-certificate-path",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="PEM file with a certificate chain and its key, to listen on /tls/ws and /tls/http. Read at start.",
)
@click.option(
    "--lease-renew-interval",
    type=duration,
    default="5m",
    show_default=True,
    help="How often to tell the control plane that it is up.",
)
@click.option(
    "--shutdown-lease-ttl",
    type=duration,
    default="30s",
    show_default=True,
    help="How long it is away when it stops: so long it stays listed, and members leave it alone. 0: no last lease.",
)
@bounds_options
@agents_options
@metrics_option("/debug/members", "/debug/invariants")
@click.option(
    "--admin-addr",
    metavar="HOST:PORT",
    callback=bind_address,
    help="Serve the admin API about agents here, for whoever shows the token.",
)
@click.option(
    "--admin-api-token-path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    envvar="AGENTMESH_ROUTER_ADMIN_TOKEN_PATH",
    show_envvar=True,
    help="The file with that token; made when it is not there. By default admin-token in the data folder.",
)
@logging_options
def command(
    control_plane: str,
    token: str | None,
    jwt_path: Path | None,
    labels: tuple[tuple[str, str], ...],
    data_dir: Path,
    listen: tuple[Address, ...],
    external_addr: tuple[Address, ...],
    tls_certificate_path: Path | None,
    lease_renew_interval: float,
    shutdown_lease_ttl: float,
    retry_budget: float,
    metrics_addr: str | None,
    admin_addr: str | None,
    admin_api_token_path: Path | None,
    **rest: Any,
) -> None:
    """Run a router: it relays for members what it cannot read.

    Members hold sessions to it, and reach each other through it. Streams through agents it could read, unless they are
    encrypted themselves, as ssh is. At SIGTERM or SIGINT it tells members to go elsewhere, and stops when they are
    gone; a second signal stops it at once. It dials through the proxy that HTTPS_PROXY names, but for what is in
    NO_PROXY.
    """
    try:
        bound = Bounds(**{field.name: rest.pop(field.name) for field in attrs.fields(Bounds)})
        connections, relay, agents = bound.connections(), bound.relay(), AgentBounds(**rest).config()
    except ValueError as exc:
        raise click.UsageError(str(exc), click.get_current_context()) from exc
    config = RouterConfig(
        enrollment=enrollment(control_plane, token, jwt_path, labels, retry_budget),
        state_dir=data_dir,
        listen=listen,
        external_addresses=external_addr,
        tls_certificate=tls_certificate_path,
        lease_renew_interval=lease_renew_interval,
        shutdown_lease_ttl=shutdown_lease_ttl,
        relay=relay,
        host=HostConfig(connections=connections),
        directory=bound.directory(),
        agents=agents,
    )
    admin = admin_addr, admin_api_token_path or data_dir / ADMIN_TOKEN_FILE
    run_program(
        partial(_serve, config, metrics_addr, admin),
        stop_timeout=STOP_TIMEOUT + max(shutdown_lease_ttl, agents.drain_timeout),
    )


async def _serve(config: RouterConfig, metrics_addr: str | None, admin: Admin, stop: trio.Event) -> None:
    async def serve(router: Router) -> None:
        await nursery.start(pages, router)
        logger.info("serving", extra={"peer": str(router.peer), "addresses": " ".join(map(str, router.addresses))})
        await stop.wait()
        logger.info("stopping")

    async def pages(router: Router, task_status: trio.TaskStatus[None]) -> None:
        """They are there until the router is gone: what it does last is seen."""
        async with (
            serve_pages(router_pages(router), metrics_addr) as url,
            serve_admin(router.agents, router.membership.wall_clock, *admin) as admin_url,
        ):
            if url is not None:
                logger.info("metrics", extra={"url": url})
            if admin_url is not None:
                logger.info("admin API", extra={"url": admin_url})
            task_status.started()
            await trio.sleep_forever()

    async with open_background() as nursery:
        await run_member(open_router(config), stop, serve)
