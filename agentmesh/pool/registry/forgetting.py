"""Forgetting, now and then, the epochs of connections that ended long ago."""

import logging
from random import Random
from typing import NoReturn

import trio

from agentmesh.pool.registry.errors import RegistryError
from agentmesh.pool.registry.keeper_config import KeeperConfig
from agentmesh.pool.registry.registry import ConnectionRegistry

logger = logging.getLogger(__name__)


async def forget_for_ever(registry: ConnectionRegistry, config: KeeperConfig, rng: Random) -> NoReturn:
    """Until cancelled. Any router may do it, and each does, not all at the same time."""
    while True:
        await trio.sleep(config.forget_interval * rng.uniform(0.5, 1.0))
        try:
            forgotten = await registry.forget_fences(config.fence_retention)
        except RegistryError as exc:
            logger.info("epochs not forgotten", extra={"reason": exc})
        else:
            logger.info("epochs forgotten", extra={"connections": forgotten})
