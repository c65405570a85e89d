"""The router's lease: while it lasts, the control plane lists the router."""

import logging
from collections.abc import Callable, Sequence
from typing import NoReturn

import trio

from agentmesh.control_plane.client import RouterLoad
from agentmesh.control_plane.errors import ControlPlaneError, UnauthorizedError
from agentmesh.errors import RemoteProtocolError
from agentmesh.membership import Membership
from agentmesh.types import Address

logger = logging.getLogger(__name__)

RETRY_WAIT = 5.0  # seconds after a renewal that failed


async def keep_lease(
    membership: Membership,
    addresses: Callable[[], Sequence[Address]],
    load: Callable[[], RouterLoad],
    interval: float,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> NoReturn:
    """Take a lease and renew it, until cancelled; started once the first one is held.

    Args:
        membership: the router's.
        addresses: where members dial it, each ending in its peer ID.
        load: how busy it is now.
        interval: seconds between renewals.
    Raises:
        ControlPlaneError, RemoteProtocolError: the first lease was refused. Later refusals are logged and tried again.
        CredentialError: the credential has expired and is not renewed.
    """
    await _renew(membership, addresses(), load())
    logger.info("lease taken", extra={"peer": membership.identity.peer})
    task_status.started()
    wait = interval
    while True:
        await trio.sleep(wait)
        try:
            await _renew(membership, addresses(), load())
        except (ControlPlaneError, RemoteProtocolError) as exc:
            logger.warning("lease not renewed", extra={"reason": exc})
            wait = min(RETRY_WAIT, interval)
        else:
            wait = interval


async def _renew(membership: Membership, addresses: Sequence[Address], load: RouterLoad) -> None:
    """Once more with a new credential when the control plane does not take the one we have."""
    try:
        await membership.client.renew_lease(membership.token(), addresses, load=load)
    except UnauthorizedError as exc:
        logger.warning("lease refused, renewing the credential", extra={"reason": exc})
        if not await membership.renew():
            raise
        await membership.client.renew_lease(membership.token(), addresses, load=load)
