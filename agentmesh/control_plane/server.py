"""A whole control plane: the database, its keys, the app, the socket."""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio
from starlette.types import ASGIApp

from agentmesh.control_plane.app import make_app
from agentmesh.control_plane.authority import Authority, open_authority
from agentmesh.control_plane.config import Config, parse_bind_address
from agentmesh.control_plane.metrics import Metrics
from agentmesh.control_plane.oidc.verifier import TokenVerifier, open_verifier
from agentmesh.control_plane.serving import serve_http
from agentmesh.control_plane.store import Store, open_store, until_settled
from agentmesh.control_plane.tokens import create_token
from agentmesh.control_plane.upkeep import Upkeep
from agentmesh.runtime.nursery import open_background


@attrs.frozen
class Plane:
    """A control plane without a socket, which does nothing by itself: `upkeep.run` is for whoever opened it."""

    app: ASGIApp
    store: Store
    authority: Authority
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
    """

    url: str


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
        metrics = Metrics(store, wall_clock)
        app = make_app(store, authority, verifier, metrics, config, wall_clock)
        upkeep = Upkeep(store, authority, metrics, config, wall_clock)
        yield Plane(app, store, authority, upkeep, verifier, wall_clock)


@asynccontextmanager
async def open_control_plane(
    config: Config, wall_clock: Callable[[], float] = time.time
) -> AsyncGenerator[ControlPlane]:
    """`async with open_control_plane(config) as control_plane:` serves for as long as the block lasts.

    Raises:
        OSError: the address is taken or not ours, or the database file cannot be opened.
        ValueError: the database is one whose driver is not installed.
        StoreError: the database does not answer.
    """
    async with open_plane(config, wall_clock) as plane:
        host, port = parse_bind_address(config.bind_address)
        async with serve_http(plane.app, host, port) as url, open_background() as background:
            background.start_soon(plane.upkeep.run)
            background.start_soon(plane.verifier.discover)
            yield ControlPlane(
                plane.app, plane.store, plane.authority, plane.upkeep, plane.verifier, plane.wall_clock, url
            )


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
