"""A whole control plane: the database, its keys, the app, the socket."""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio
from starlette.types import ASGIApp

from agentmesh.abc import Transport
from agentmesh.control_plane.app import make_app, make_metrics_app
from agentmesh.control_plane.authority import Authority, open_authority
from agentmesh.control_plane.bind_address import parse_bind_address
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.herald import Herald
from agentmesh.control_plane.metrics import Metrics
from agentmesh.control_plane.oidc.verifier import TokenVerifier, open_verifier
from agentmesh.control_plane.publisher import run_publisher
from agentmesh.control_plane.serving import serve_http
from agentmesh.control_plane.store import Store, open_store, until_settled
from agentmesh.control_plane.tokens import create_token
from agentmesh.control_plane.upkeep import Upkeep
from agentmesh.runtime.nursery import open_background
from agentmesh.transports.standard import standard_transports


@attrs.frozen
class Plane:
    """A control plane without a socket, which does nothing by itself: `upkeep.run` is for whoever opened it."""

    app: ASGIApp
    metrics_app: ASGIApp  # for a port of its own
    store: Store
    authority: Authority
    herald: Herald
    upkeep: Upkeep
    verifier: TokenVerifier
    wall_clock: Callable[[], float]

    async def create_token(self, role: str, *, max_usages: int = 1, ttl: float = 3600.0, description: str = "") -> str:
        """Make a bootstrap token, good for `max_usages` enrollments in the next `ttl` seconds; give its value.

        Raises:
            RefusedError: an argument is out of range.
            StoreError: the database does not answer.
        """
        value, _ = await create_token(
            self.store, self.wall_clock, role=role, max_usages=max_usages, ttl=ttl, description=description
        )
        return value


@attrs.frozen
class ControlPlane(Plane):
    """A control plane that serves.

    Attributes:
        url: to reach it at from this machine.
        metrics_url: the same of the metrics' own port, if they have one.
    """

    url: str
    metrics_url: str | None


@asynccontextmanager
async def open_plane(config: Config, wall_clock: Callable[[], float] = time.time) -> AsyncGenerator[Plane]:
    """Open the database and make the app. Raises as `open_store` does.

    Args:
        wall_clock: gives the seconds since 1970.
    """
    async with (
        open_store(config.db_dsn) as store,
        open_verifier(config.trust, wall_clock, insecure=config.insecure_skip_tls_verify) as verifier,
    ):
        authority = await open_authority(store, config.biscuit_ttl, wall_clock)
        if config.policy is not None:
            await until_settled(partial(store.access.first_policy, config.policy, wall_clock()))
        metrics, herald = Metrics(store, wall_clock), Herald(store, authority, wall_clock)
        app = make_app(store, authority, herald, verifier, metrics, config, wall_clock)
        upkeep = Upkeep(store, authority, metrics, config, wall_clock, herald.rotated)
        metrics_app = make_metrics_app(store, metrics)
        yield Plane(app, metrics_app, store, authority, herald, upkeep, verifier, wall_clock)


@asynccontextmanager
async def open_control_plane(
    config: Config,
    wall_clock: Callable[[], float] = time.time,
    *,
    transports: Sequence[Transport] | None = None,
) -> AsyncGenerator[ControlPlane]:
    """`async with open_control_plane(config) as control_plane:` serves for as long as the block lasts.

    Args:
        config: the settings.
        wall_clock: gives the seconds since 1970.
        transports: to dial routers with; `standard_transports` when it is None.
    Raises:
        OSError: the address is taken or not ours, or the database file cannot be opened.
        MissingExtraError: the database is one whose driver is not installed.
        AddressError: the environment names an outbound proxy that is none.
        StoreError: the database does not answer.
    """
    transports = standard_transports() if transports is None else transports
    async with open_plane(config, wall_clock) as plane:
        host, port = parse_bind_address(config.bind_address)
        publish = partial(
            run_publisher,
            plane.store,
            plane.authority,
            plane.herald,
            transports=transports,
            reconnect_interval=config.mesh_reconnect_interval,
            wall_clock=wall_clock,
        )
        async with (
            _serve_metrics(plane, config) as metrics_url,
            serve_http(plane.app, host, port) as url,
            open_background() as background,
        ):
            for work in (plane.upkeep.run, plane.verifier.discover, publish):
                background.start_soon(work)
            yield ControlPlane(**_fields(plane), url=url, metrics_url=metrics_url)


@asynccontextmanager
async def _serve_metrics(plane: Plane, config: Config) -> AsyncGenerator[str | None]:
    if config.metrics_address is None:
        yield None
        return
    async with serve_http(plane.metrics_app, *parse_bind_address(config.metrics_address)) as url:
        yield url


def _fields(plane: Plane) -> dict[str, Any]:
    return {field.name: getattr(plane, field.name) for field in attrs.fields(Plane)}


async def run_control_plane(
    config: Config,
    wall_clock: Callable[[], float] = time.time,
    *,
    task_status: trio.TaskStatus[ControlPlane] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled: `control_plane = await nursery.start(run_control_plane, config)`. Raises as above."""
    async with open_control_plane(config, wall_clock) as control_plane:
        task_status.started(control_plane)
        await trio.sleep_forever()
