"""The router's lease: while it lasts, the control plane lists the router."""

import enum
import logging
from collections.abc import Callable, Sequence
from typing import NoReturn

import trio

from agentmesh.control_plane.client import RouterLoad
from agentmesh.control_plane.errors import ControlPlaneError, RequestRefusedError, UnauthorizedError
from agentmesh.errors import RemoteProtocolError
from agentmesh.membership import Membership
from agentmesh.types import Address

logger = logging.getLogger(__name__)

RETRY_WAIT = 5.0  # seconds after a renewal that failed
MUCH = 0.05  # of the sessions that a router may hold: a change of its load that it says at once
LOOK_INTERVAL = 1.0  # seconds between two looks at the load
LAST_TIMEOUT = 5.0  # seconds that the last lease may take, when the router stops

LEASE_ERRORS = (ControlPlaneError, RemoteProtocolError)


class LeaseResult(enum.StrEnum):
    """How a renewal ended."""

    OK = "ok"
    UNREACHABLE = "unreachable"
    UNAUTHORIZED = "unauthorized"
    REJECTED = "rejected"

    @classmethod
    def of(cls, error: Exception) -> "LeaseResult":
        match error:
            case UnauthorizedError():
                return cls.UNAUTHORIZED
            case RequestRefusedError():
                return cls.REJECTED
            case _:
                return cls.UNREACHABLE


class Lease:
    """The lease of one router.

    Args:
        membership: the router's.
        addresses: where members dial it, each ending in its peer ID.
        load: how busy it is now.
        interval: seconds between renewals.

    Attributes:
        addresses, load: as given.
        held_until: wall-clock seconds of the control plane at which it runs out.
        results: how renewals ended; every LeaseResult is there from the start, at 0.
    """

    def __init__(
        self,
        membership: Membership,
        addresses: Callable[[], Sequence[Address]],
        load: Callable[[], RouterLoad],
        interval: float,
    ) -> None:
        self.results: dict[LeaseResult, int] = dict.fromkeys(LeaseResult, 0)
        self._membership = membership
        self.addresses = addresses
        self.load = load
        self.held_until = 0.0
        self._interval = interval
        self._renewing = trio.Lock()
        self._told = RouterLoad()
        self._is_over = False

    async def keep(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> NoReturn:
        """Take the lease and renew it, until cancelled; started once the first one is held.

        Raises:
            ControlPlaneError, RemoteProtocolError: the first lease was refused. Later refusals are logged and tried
                again.
            CredentialError: the credential has expired and is not renewed.
        """
        await self._renew()
        logger.info("lease taken", extra={"peer": self._membership.identity.peer})
        task_status.started()
        wait = self._interval
        while True:
            with trio.move_on_after(wait):
                while not self._is_outdated():  # noqa: ASYNC110 - a load changes without a word
                    await trio.sleep(LOOK_INTERVAL)
            try:
                await self._renew()
            except LEASE_ERRORS as exc:
                logger.warning("lease not renewed", extra={"reason": exc})
                wait = min(RETRY_WAIT, self._interval)
            else:
                wait = self._interval

    def _is_outdated(self) -> bool:
        """Whether the router is much busier, or idler, than it said last: members choose by that."""
        load = self.load()
        return not self._is_over and abs(load.connections - self._told.connections) >= max(
            MUCH * load.connection_limit, 1
        )

    async def end(self, ttl: float) -> None:
        """Renew it no more. The last lease is one of `ttl` seconds: the time that the router expects to be away.

        Args:
            ttl: 0 sends nothing, and the lease that is held runs out.
        """
        self._is_over = True
        if not ttl:
            return
        with trio.move_on_after(LAST_TIMEOUT) as limit:
            async with self._renewing:  # what is on its way is not to come behind it
                try:
                    await self._send(ttl)
                except LEASE_ERRORS as exc:
                    logger.warning("the last lease was not taken", extra={"reason": exc})
        if limit.cancelled_caught:
            logger.warning("the last lease was not taken", extra={"reason": f"no answer within {LAST_TIMEOUT} s"})

    async def _renew(self) -> None:
        """Once more with a new credential when the control plane does not take the one we have."""
        async with self._renewing:
            if self._is_over:
                return
            try:
                await self._send()
            except UnauthorizedError as exc:
                logger.warning("lease refused, renewing the credential", extra={"reason": exc})
                if not await self._membership.renew():
                    raise
                if not self._is_over:
                    await self._send()

    async def _send(self, ttl: float | None = None) -> None:
        membership, self._told = self._membership, self.load()
        try:
            self.held_until = await membership.client.renew_lease(
                membership.token(), self.addresses(), load=self._told, ttl=ttl
            )
        except LEASE_ERRORS as exc:
            self.results[LeaseResult.of(exc)] += 1
            raise
        self.results[LeaseResult.OK] += 1
