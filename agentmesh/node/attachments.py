"""The routers a node is attached to: dialled, admitted at, reserved with; replaced when they go."""

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import NoReturn

import trio

from agentmesh.abc import Session
from agentmesh.control_plane.errors import ControlPlaneError
from agentmesh.control_plane.routers import RouterRecord
from agentmesh.credentials import ROLE_ROUTER
from agentmesh.errors import CredentialError, DialError, RemoteProtocolError
from agentmesh.membership import Membership
from agentmesh.node.catalogue import Catalogue
from agentmesh.protocols.auth import AUTH_ID, authenticate
from agentmesh.protocols.relay import ReservationGranted, keep_reservation
from agentmesh.runtime.host import Host
from agentmesh.types import Address, PeerId

logger = logging.getLogger(__name__)

ATTACH_TIMEOUT = 10.0  # seconds to be connected to a router and admitted by it
RESERVATION_RETRY = 30.0  # seconds after a reservation was refused or lost
SYNC_INTERVAL = 900.0  # seconds between two looks at the control plane's list
SHORT_SYNC_INTERVAL = 5.0  # the same while routers are missing
ATTACH_ERRORS = (DialError, CredentialError, RemoteProtocolError, trio.BrokenResourceError, trio.TooSlowError)
PROTECTION = "agentmesh-router"


class Attachments:
    """Keeps a node attached to as many routers as its catalogue wants.

    Args:
        host: the node's.
        membership: its standing in the mesh.
        catalogue: which routers there are.
        wall_clock: seconds since 1970; reservations end by it.
    """

    def __init__(
        self, host: Host, membership: Membership, catalogue: Catalogue, wall_clock: Callable[[], float]
    ) -> None:
        self.catalogue = catalogue
        self._host = host
        self._membership = membership
        self._wall_clock = wall_clock
        self._reserved: dict[PeerId, tuple[Address, ...]] = {}
        self._changed = trio.Event()
        self._ready = trio.Event()
        membership.on_renewed(self._readmit)
        self._nursery: trio.Nursery

    @property
    def routers(self) -> tuple[PeerId, ...]:
        """The routers that are held: admitted, and reserved with."""
        return tuple(record.peer for record in self.catalogue.attached if record.peer in self._reserved)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where others can dial this node: a circuit through each router that is held."""
        return tuple(address for addresses in self._reserved.values() for address in addresses)

    async def wait_ready(self) -> None:
        """Until one router is held."""
        await self._ready.wait()

    async def run(self) -> NoReturn:
        """Attach, and replace what is lost, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            next_sync = trio.current_time()
            while True:
                now = trio.current_time()
                if now >= next_sync:
                    await self._sync()
                    next_sync = now + (SHORT_SYNC_INTERVAL if self.catalogue.is_short else SYNC_INTERVAL)
                self._changed = trio.Event()
                for record in self.catalogue.choose(trio.current_time()):
                    nursery.start_soon(self._hold, record)
                with trio.move_on_at(min(next_sync, self.catalogue.deadline)):
                    await self._changed.wait()
                    next_sync = min(next_sync, trio.current_time() + SHORT_SYNC_INTERVAL)

    async def admit_at(self, session: Session) -> None:
        """Show our credential to the router at the end of a session, and check its own.

        Raises:
            RejectedError, CredentialError, RemoteProtocolError, BrokenResourceError, TooSlowError: as `authenticate`.
        """
        async with await session.open_stream(AUTH_ID) as stream:
            await authenticate(
                stream, token=self._membership.token(), verify=self._membership.verify, required_role=ROLE_ROUTER
            )

    # ── one router ──

    async def _hold(self, record: RouterRecord) -> None:
        """From the dial to the end of the session."""
        try:
            with trio.fail_after(ATTACH_TIMEOUT):
                session = await self._host.connect(record.peer, record.addresses)
                await self.admit_at(session)
        except ATTACH_ERRORS as exc:
            logger.warning("not attached", extra={"router": record.peer, "reason": exc})
            self.catalogue.failed(record.peer, trio.current_time())
            self._changed.set()
            return
        self.catalogue.admitted(record.peer)
        self._host.connections.protect(record.peer, PROTECTION)
        logger.info("attached", extra={"router": record.peer})
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._reserve, record)
                await session.ended.wait()
                nursery.cancel_scope.cancel()
        finally:
            logger.info("detached", extra={"router": record.peer})
            self._host.connections.unprotect(record.peer, PROTECTION)
            self._reserved.pop(record.peer, None)
            self.catalogue.lost(record.peer)
            self._changed.set()

    async def _reserve(self, record: RouterRecord) -> NoReturn:
        """Be reachable through the router for as long as it is held."""
        router = record.addresses[0].with_peer(record.peer) / "p2p-circuit"
        async with AsyncExitStack() as listening:
            await listening.enter_async_context(self._host.listening(router))
            while True:
                try:
                    await keep_reservation(
                        self._host, record.peer, lambda granted: self._granted(record, granted), self._wall_clock
                    )
                except ATTACH_ERRORS as exc:
                    logger.warning("no reservation", extra={"router": record.peer, "reason": exc})
                    self._reserved.pop(record.peer, None)
                await trio.sleep(RESERVATION_RETRY)

    def _granted(self, record: RouterRecord, granted: ReservationGranted) -> None:
        self._reserved[record.peer] = tuple(
            address.with_peer(record.peer) / f"p2p-circuit/p2p/{self._host.peer}" for address in record.addresses
        )
        self._ready.set()

    # ── all of them ──

    async def _sync(self) -> None:
        try:
            self.catalogue.update((await self._membership.client.info()).routers)
        except (ControlPlaneError, RemoteProtocolError) as exc:
            logger.warning("router list not read", extra={"reason": exc})

    def _readmit(self) -> None:
        """The credential is new: show it on every session that the old one opened, or the gates close with that."""
        for record in self.catalogue.attached:
            if (session := self._host.session(record.peer)) is not None:
                self._nursery.start_soon(self._readmit_at, session)

    async def _readmit_at(self, session: Session) -> None:
        try:
            await self.admit_at(session)
        except ATTACH_ERRORS as exc:
            logger.warning("not admitted again", extra={"router": session.peer, "reason": exc})
