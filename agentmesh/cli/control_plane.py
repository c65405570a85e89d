"""`agentmesh control-plane`."""

import logging
from functools import partial
from typing import Any

import click
import trio

from agentmesh.cli.config_file import config_option
from agentmesh.cli.params import admin_token_option, comma_separated, duration, logging_options, secret_file
from agentmesh.cli.policy_file import policy_option
from agentmesh.cli.program import run_program
from agentmesh.control_plane.config import MAX_REPLICATION, Config
from agentmesh.control_plane.dsn import parse_dsn
from agentmesh.control_plane.oidc.trust import DEFAULT_AUDIENCE, Trust, TrustedIssuer
from agentmesh.control_plane.server import open_control_plane

logger = logging.getLogger(__name__)


@click.command("control-plane")
@config_option
@click.option(
    "--bind-address",
    default="0.0.0.0:8080",
    show_default=True,
    envvar="AGENTMESH_BIND_ADDRESS",
    show_envvar=True,
    help="Host and port to serve HTTP on; port 0 takes any free one.",
)
@click.option(
    "--metrics-addr",
    "metrics_address",
    metavar="HOST:PORT",
    envvar="AGENTMESH_METRICS_ADDR",
    show_envvar=True,
    help="Serve /metrics, /healthz and /readyz there too, and nothing else.",
)
@click.option(
    "--db-dsn",
    default="control-plane.db",
    show_default=True,
    envvar="AGENTMESH_DB_DSN",
    show_envvar=True,
    help="The database that holds everything: an SQLite file, created when it is not there, or a postgresql:// URL.",
)
@click.option(
    "--db-dsn-path",
    "secret_dsn",
    type=secret_file,
    metavar="FILE",
    envvar="AGENTMESH_DB_DSN_PATH",
    show_envvar=True,
    help="A file with that URL, for one with a password in it.",
)
@admin_token_option("A file with the token that admins show; without one the admin interface is closed.")
@click.option(
    "--issuer",
    "issuers",
    callback=comma_separated,
    default="",
    show_default="nobody logs in",
    metavar="URL[,URL]",
    envvar="AGENTMESH_ISSUER",
    show_envvar=True,
    help="Identity providers (OpenID Connect) whose tokens admit people.",
)
@click.option(
    "--workload-issuer",
    "workload_issuers",
    callback=comma_separated,
    default="",
    show_default="none",
    metavar="URL[=SUFFIX][,…]",
    envvar="AGENTMESH_WORKLOAD_ISSUER",
    show_envvar=True,
    help="Issuers whose tokens admit programs; of those whose email ends in SUFFIX only, if one is given.",
)
@click.option(
    "--allowed-audiences",
    "audiences",
    callback=comma_separated,
    default=DEFAULT_AUDIENCE,
    show_default=True,
    metavar="NAME[,NAME]",
    envvar="AGENTMESH_ALLOWED_AUDIENCES",
    show_envvar=True,
    help="Whom tokens have to be for, one of these.",
)
@click.option(
    "--oidc-client-id",
    default="",
    show_default="none",
    envvar="AGENTMESH_OIDC_CLIENT_ID",
    show_envvar=True,
    help="What programs that log people in are known as to the first issuer; told on /info.",
)
@click.option(
    "--require-nonce",
    is_flag=True,
    envvar="AGENTMESH_REQUIRE_NONCE",
    show_envvar=True,
    help="A token has to name the peer that registers with it as its nonce.",
)
@click.option(
    "--insecure-skip-tls-verify",
    is_flag=True,
    envvar="AGENTMESH_INSECURE_SKIP_TLS_VERIFY",
    show_envvar=True,
    help="Believe issuers without looking at their certificates. For tests.",
)
@click.option(
    "--oidc-session-ttl",
    type=duration,
    default="90d",
    show_default=True,
    envvar="AGENTMESH_OIDC_SESSION_TTL",
    show_envvar=True,
    help="How long a person's node renews its credential without another token.",
)
@click.option(
    "--workload-session-ttl",
    type=duration,
    default="48h",
    show_default=True,
    envvar="AGENTMESH_WORKLOAD_SESSION_TTL",
    show_envvar=True,
    help="How long a program's node does.",
)
@policy_option("The policy to begin with, in YAML: put in force when there is none yet.")
@click.option(
    "--auto-approve-enrollment",
    is_flag=True,
    envvar="AGENTMESH_AUTO_APPROVE_ENROLLMENT",
    show_envvar=True,
    help="A valid bootstrap token is enough to become a member. Without it an admin approves each.",
)
@click.option(
    "--poll-interval",
    type=duration,
    default="30s",
    show_default=True,
    envvar="AGENTMESH_POLL_INTERVAL",
    show_envvar=True,
    help="How long those who wait for that are to wait before they ask again.",
)
@click.option(
    "--enroll-rate",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    envvar="AGENTMESH_ENROLL_RATE",
    show_envvar=True,
    help="How many requests to enroll or register are taken per second, of all callers together.",
)
@click.option(
    "--enroll-burst",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    envvar="AGENTMESH_ENROLL_BURST",
    show_envvar=True,
    help="How many of them are taken at once after a quiet time.",
)
@click.option(
    "--biscuit-ttl",
    type=duration,
    default="24h",
    show_default=True,
    envvar="AGENTMESH_BISCUIT_TTL",
    show_envvar=True,
    help="How long a credential is valid.",
)
@click.option(
    "--lease-duration",
    type=duration,
    default="15m",
    show_default=True,
    envvar="AGENTMESH_LEASE_DURATION",
    show_envvar=True,
    help="How long a router is listed after it last said that it is up.",
)
@click.option(
    "--dht-replication",
    type=click.IntRange(1, MAX_REPLICATION),
    default=3,
    show_default=True,
    envvar="AGENTMESH_DHT_REPLICATION",
    show_envvar=True,
    help="How many routers hold each record of the directory.",
)
@click.option(
    "--mesh-reconnect-interval",
    type=duration,
    default="30s",
    show_default=True,
    envvar="AGENTMESH_MESH_RECONNECT_INTERVAL",
    show_envvar=True,
    help="How often to dial routers that are not reached, to tell them of bans, keys and policies.",
)
@click.option(
    "--key-rotation-interval",
    type=duration,
    default="24h",
    show_default=True,
    envvar="AGENTMESH_KEY_ROTATION_INTERVAL",
    show_envvar=True,
    help="How long a key signs credentials until a new one takes over; 0 for ever.",
)
@click.option(
    "--key-grace-period",
    type=duration,
    default="1h",
    show_default=True,
    envvar="AGENTMESH_KEY_GRACE_PERIOD",
    show_envvar=True,
    help="How long a retired key's credentials are still honoured.",
)
@click.option(
    "--node-retention",
    type=duration,
    default="720h",
    show_default=True,
    envvar="AGENTMESH_NODE_RETENTION",
    show_envvar=True,
    help="How long a member is remembered after its last credential expired.",
)
@logging_options
def command(
    db_dsn: str,
    secret_dsn: str | None,
    issuers: tuple[str, ...],
    workload_issuers: tuple[str, ...],
    audiences: tuple[str, ...],
    require_nonce: bool,
    **settings: Any,
) -> None:
    """Run the control plane: it admits members, lists routers."""
    try:
        trust = Trust(
            issuers=(*map(TrustedIssuer.parse, issuers), *map(TrustedIssuer.parse_workload, workload_issuers)),
            audiences=audiences,
            require_nonce=require_nonce,
        )
        config = Config(db_dsn=secret_dsn or db_dsn, trust=trust, **settings)
    except ValueError as exc:
        raise click.UsageError(str(exc), click.get_current_context()) from exc
    run_program(partial(_serve, config))


async def _serve(config: Config, stop: trio.Event) -> None:
    async with open_control_plane(config) as control_plane:
        logger.info("serving", extra={"url": control_plane.url, "database": parse_dsn(config.db_dsn)})
        if config.admin_token is None and not config.auto_approve_enrollment:
            remedy = "--admin-token-path or --auto-approve-enrollment"
            logger.warning("nobody can approve enrollments", extra={"remedy": remedy})
        if not (await control_plane.store.access.policy()).roles:
            remedy = "--policy-file, or agentmesh admin policy set"
            logger.warning("there is no policy: no member may call another", extra={"remedy": remedy})
        await stop.wait()
        logger.info("stopping")
