"""`agentmesh router`."""

import logging
from functools import partial
from pathlib import Path

import click
import trio

from agentmesh.cli.config_file import config_option
from agentmesh.cli.membership import address, enrollment, membership_options, run_member
from agentmesh.cli.params import data_dir_option, duration, logging_options, metrics_option
from agentmesh.cli.program import STOP_TIMEOUT, run_program
from agentmesh.membership.pages import serve_pages
from agentmesh.protocols.relay import BookLimits, CircuitLimits, DataPathConfig, RelayConfig
from agentmesh.router import Router, RouterConfig, open_router
from agentmesh.router.config import DEFAULT_LISTEN
from agentmesh.router.pages import router_pages
from agentmesh.runtime.config import ConnectionLimits, HostConfig
from agentmesh.runtime.nursery import open_background
from agentmesh.types import Address

logger = logging.getLogger(__name__)


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
@click.option(
    "--high-watermark",
    type=click.IntRange(2),
    default=4000,
    show_default=True,
    help="Sessions above which unauthenticated ones are closed; at so many members, some are told to go elsewhere.",
)
@click.option("--low-watermark", type=click.IntRange(1), help="Sessions that are left then.  [default: 15% below high]")
@click.option(
    "--conns-per-source-ip",
    type=click.IntRange(1),
    help="Connections of one address, loopback excepted.  [default: a quarter of high]",
)
@click.option(
    "--relay-max-reservations", type=click.IntRange(1), help="Members it relays to.  [default: the high watermark]"
)
@click.option(
    "--relay-max-circuits", type=click.IntRange(1), default=1024, show_default=True, help="Circuits of one member."
)
@click.option(
    "--relay-limit-duration", type=duration, default="1h", show_default=True, help="Longest life of a circuit; 0: none."
)
@click.option(
    "--relay-limit-data",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Bytes that a circuit may carry each way; 0: no limit.",
)
@click.option(
    "--relay-data-path/--no-relay-data-path",
    default=True,
    show_default=True,
    help="Give circuits TCP connections of their own, through the same port, where both members reach it over TCP.",
)
@metrics_option("/debug/members")
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
    high_watermark: int,
    low_watermark: int | None,
    conns_per_source_ip: int | None,
    relay_max_reservations: int | None,
    relay_max_circuits: int,
    relay_limit_duration: float,
    relay_limit_data: int,
    relay_data_path: bool,
    metrics_addr: str | None,
) -> None:
    """Run a router: it relays for members what it cannot read.

    Members hold sessions to it, and reach each other through it. At SIGTERM or SIGINT it tells them to go elsewhere,
    and stops when they are gone; a second signal stops it at once. It dials through the proxy that HTTPS_PROXY names,
    but for what is in NO_PROXY.
    """
    try:
        given = {"low_watermark": low_watermark, "max_per_source": conns_per_source_ip}
        limits = {name: value for name, value in given.items() if value is not None}
        connections = ConnectionLimits(high_watermark=high_watermark, **limits)
    except ValueError as exc:
        raise click.UsageError(str(exc), click.get_current_context()) from exc
    book = BookLimits(
        max_reservations=relay_max_reservations or high_watermark,
        max_reservations_per_source=connections.max_per_source,
        max_circuits_per_peer=relay_max_circuits,
    )
    config = RouterConfig(
        enrollment=enrollment(control_plane, token, jwt_path, labels),
        state_dir=data_dir,
        listen=listen,
        external_addresses=external_addr,
        tls_certificate=tls_certificate_path,
        lease_renew_interval=lease_renew_interval,
        shutdown_lease_ttl=shutdown_lease_ttl,
        relay=RelayConfig(
            book,
            CircuitLimits(max_duration=relay_limit_duration, max_bytes=relay_limit_data),
            data_path=DataPathConfig(enabled=relay_data_path),
        ),
        host=HostConfig(connections=connections),
    )
    run_program(partial(_serve, config, metrics_addr), stop_timeout=STOP_TIMEOUT + shutdown_lease_ttl)


async def _serve(config: RouterConfig, metrics_addr: str | None, stop: trio.Event) -> None:
    async def serve(router: Router) -> None:
        await nursery.start(pages, router)
        logger.info("serving", extra={"peer": str(router.peer), "addresses": " ".join(map(str, router.addresses))})
        await stop.wait()
        logger.info("stopping")

    async def pages(router: Router, task_status: trio.TaskStatus[None]) -> None:
        """They are there until the router is gone: what it does last is seen."""
        async with serve_pages(router_pages(router), metrics_addr) as url:
            if url is not None:
                logger.info("metrics", extra={"url": url})
            task_status.started()
            await trio.sleep_forever()

    async with open_background() as nursery:
        await run_member(open_router(config), stop, serve)
