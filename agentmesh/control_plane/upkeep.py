"""What a control plane does by itself: new keys in time, and forgetting who has been gone for long."""

import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

import trio

from agentmesh.control_plane.authority import Authority, Rotation
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.database import StoreError
from agentmesh.control_plane.metrics import Metrics
from agentmesh.control_plane.store import Store

logger = logging.getLogger(__name__)

ROTATION_CHECK_INTERVAL = 30.0  # seconds
RETENTION_CHECK_INTERVAL = 3600.0  # seconds

Rotated = Callable[[Rotation], Awaitable[None]]


async def tell_nobody(_: Rotation) -> None:
    """Members see new keys when they next ask for them."""


class Upkeep:
    """The work of one replica. All of it may be done by any, and of each change one replica does it.

    Args:
        wall_clock: gives the seconds since 1970.
        rotated: is told of a rotation that this replica did.
    """

    def __init__(
        self,
        store: Store,
        authority: Authority,
        metrics: Metrics,
        config: Config,
        wall_clock: Callable[[], float],
        rotated: Rotated = tell_nobody,
    ) -> None:
        self._store, self._authority, self._metrics = store, authority, metrics
        self._config, self._wall_clock, self._rotated = config, wall_clock, rotated

    async def run(self) -> NoReturn:
        """Until cancelled. A database that does not answer is waited for."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_repeat, self.rotate_if_due, ROTATION_CHECK_INTERVAL)
            await _repeat(self.forget, RETENTION_CHECK_INTERVAL)

    async def rotate_if_due(self) -> None:
        """Have a new key sign if the one that does is old enough. Raises StoreError."""
        if not self._config.key_rotation_interval:
            return
        rotation = await self._authority.rotate(self._config.key_grace_period, self._config.key_rotation_interval)
        if rotation is not None:
            await self._rotated(rotation)

    async def forget(self) -> None:
        """Delete members whose last credential expired longer ago than they are to be kept. Raises StoreError."""
        deleted = await self._store.forget(self._wall_clock(), self._config.node_retention)
        self._metrics.nodes_deleted(deleted)
        if deleted:
            logger.info("nodes deleted", extra={"nodes": deleted})


async def _repeat(work: Callable[[], Awaitable[None]], interval: float) -> NoReturn:
    while True:
        try:
            await work()
        except StoreError as exc:
            logger.warning("upkeep failed, to be tried again", extra={"reason": exc, "retry_in": interval})
        await trio.sleep(interval)
