"""The routers a node is attached to: dialled, admitted at, reserved with; replaced when they go, or send us away."""

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import NoReturn

import trio

from agentmesh.control_plane.client import MeshInfo
from agentmesh.control_plane.errors import ControlPlaneError
from agentmesh.control_plane.routers import RouterRecord
from agentmesh.errors import ErrorCode, RejectedError, RemoteProtocolError
from agentmesh.node.admissions import ADMIT_ERRORS, RouterAdmissions
from agentmesh.node.catalogue import Catalogue
from agentmesh.node.goaways import GoAways
from agentmesh.protocols.goaway import Reason
from agentmesh.protocols.pool import DIAL_ID
from agentmesh.protocols.relay import ReservationGranted, keep_reservation
from agentmesh.runtime.guard import Signal
from agentmesh.runtime.host import Host
from agentmesh.runtime.session import MuxSession
from agentmesh.types import Address, PeerId

logger = logging.getLogger(__name__)

ATTACH_TIMEOUT = 10.0  # seconds to be connected to a router and admitted by it
RESERVATION_RETRY = 30.0  # seconds after a reservation was refused or lost
SYNC_INTERVAL = 900.0  # seconds between two looks at the control plane's list, stretched by up to a tenth
FIRST_SHORT_SYNC = 1.0  # the same while routers are missing; doubling …
MONITOR_INTERVAL = 60.0  # … up to this
REPLACE_SPREAD = 20.0  # seconds within which a router that was lost is replaced, while another is held
LOOK_FIRST = 1.5  # seconds, up to twice as many, in which whoever met a full router reads the list before the next
LEAVE_TIMEOUT = 10.0  # seconds that the session to a router that sent us away is kept; the router keeps it for 5 …
TUNNEL_LEAVE_TIMEOUT = 35.0  # … or, with a tunnel on it, for 30
LEAVE_LOOK = 0.05  # seconds between two looks at whether it is still needed
PROTECTION = "agentmesh-router"
NO_PLACE = frozenset({ErrorCode.RESOURCE_LIMIT_EXCEEDED, ErrorCode.SHUTDOWN})  # a router is full, or stops

GetInfo = Callable[[], Awaitable[MeshInfo]]
WhileAttached = Callable[[PeerId], Awaitable[NoReturn]]


class Attachments:
    """Keeps a node attached to as many routers as its catalogue wants.

    Args:
        host: the node's.
        admissions: where it is admitted.
        catalogue: which routers there are.
        goaways: where routers say that they hold us no longer.
        info: reads the control plane's list of routers; may raise ControlPlaneError or RemoteProtocolError.
        wall_clock: seconds since 1970; reservations end by it.
        rng: spreads the requests of a fleet.
        beside: what else there is to do with each router for as long as it is attached; cancelled then.
        monitor_interval: seconds between two looks at the list while routers are missing, in the end.
    """

    def __init__(
        self,
        host: Host,
        admissions: RouterAdmissions,
        catalogue: Catalogue,
        goaways: GoAways,
        info: GetInfo,
        wall_clock: Callable[[], float],
        rng: Random,
        beside: Sequence[WhileAttached] = (),
        monitor_interval: float = MONITOR_INTERVAL,
    ) -> None:
        self.catalogue = catalogue
        self._host = host
        self.admissions = admissions
        self.goaways = goaways
        self._info = info
        self._wall_clock = wall_clock
        self._rng = rng
        self._monitor_interval = monitor_interval
        self._leaving: dict[PeerId, trio.Event] = {}  # of each attachment; set when the router sends us away
        self._replace_at = -math.inf
        goaways.on_sent_away(self._sent_away)
        self._beside = beside
        self._reserved: set[PeerId] = set()
        self._on_change: list[Callable[[], None]] = []
        self._changed = trio.Event()
        self._missing = Signal()

    @property
    def routers(self) -> tuple[PeerId, ...]:
        """The routers that are held: admitted at, and reserved with."""
        return tuple(record.peer for record in self._held)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where others can dial this node: a circuit by each address of each router that is held."""
        return tuple(
            _circuit(address, record.peer).with_peer(self._host.peer)
            for record in self._held
            for address in record.addresses
        )

    def on_change(self, callback: Callable[[], None]) -> None:
        """Have `callback()` called, synchronously, when `addresses` may be others. It must not raise."""
        self._on_change.append(callback)

    async def wait_ready(self) -> None:
        """Until one router is held."""
        while not self._held:
            await self._changed.wait()

    async def run(self) -> NoReturn:
        """Attach, and replace what is lost, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_list)
            while True:
                changed, now = self._changed, trio.current_time()
                wait = self._replace_at - now
                if wait <= 0 or not self.catalogue.attached:
                    for record in self.catalogue.choose(now):
                        nursery.start_soon(self._hold, record)
                    wait = self._spread(self.catalogue.deadline - now)
                with trio.move_on_after(wait):
                    await changed.wait()

    @property
    def _held(self) -> list[RouterRecord]:
        return [record for record in self.catalogue.attached if record.peer in self._reserved]

    def _notify(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()
        for callback in self._on_change:
            callback()

    # ── one router ──

    async def _hold(self, record: RouterRecord) -> None:
        """From the dial to the end of the session."""
        try:
            with trio.fail_after(ATTACH_TIMEOUT):
                session = await self.admissions.open_session(record.peer)
        except ADMIT_ERRORS as exc:
            logger.warning("not attached", extra={"router": record.peer, "reason": str(exc) or "no answer in time"})
            if isinstance(exc, RejectedError) and exc.code in NO_PLACE:
                self.catalogue.refused(record.peer, trio.current_time())
                self._look_first()
            else:
                self.catalogue.failed(record.peer, trio.current_time())
            self._notify()
        else:
            await self._stay_attached(record, session)

    async def _stay_attached(self, record: RouterRecord, session: MuxSession) -> None:
        self.catalogue.admitted(record.peer, trio.current_time())
        self._leaving[record.peer] = trio.Event()
        self._host.connections.protect(record.peer, PROTECTION)
        logger.info("attached", extra={"router": record.peer})
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._reserve, record)
                nursery.start_soon(self._leave, session)
                for work in self._beside:
                    nursery.start_soon(work, record.peer)
                await session.ended.wait()
                nursery.cancel_scope.cancel()
        finally:
            logger.info("detached", extra={"router": record.peer})
            self._host.connections.unprotect(record.peer, PROTECTION)
            self._reserved.discard(record.peer)
            self._lost(record.peer)

    def _lost(self, router: PeerId) -> None:
        """A node that holds another router takes its time to replace one: a whole fleet may have lost it."""
        now = trio.current_time()
        if not self._leaving.pop(router).is_set():
            self._replace_at = max(self._replace_at, now + self._rng.random() * REPLACE_SPREAD)
        self.catalogue.lost(router, now)
        self._missing.set()
        self._notify()

    def _sent_away(self, router: PeerId, reason: Reason) -> None:
        """Replace it at once; its session lasts a little longer. If it is full, look first where there is room."""
        self._reserved.discard(router)
        self._host.connections.unprotect(router, PROTECTION)
        self._replace_at = -math.inf
        if reason is Reason.OVERLOADED:
            self._look_first()
        self._leaving[router].set()
        self._missing.set()
        self._notify()

    def _look_first(self) -> None:
        """While another router is held: the list that led to a router without a place is too old."""
        look = LOOK_FIRST * (1 + self._rng.random())
        self._replace_at = max(self._replace_at, trio.current_time() + look)
        self._missing.set()

    async def _leave(self, session: MuxSession) -> None:
        """End the session to a router that sent us away: when others are held, and nothing is under way through it."""
        await self._leaving[session.peer].wait()
        until = trio.current_time() + LEAVE_TIMEOUT
        with trio.move_on_after(TUNNEL_LEAVE_TIMEOUT):
            while _has_tunnels(session) or (trio.current_time() < until and self._needs(session)):  # noqa: ASYNC110
                await trio.sleep(LEAVE_LOOK)  # seldom, and for seconds
        await session.aclose()

    def _needs(self, session: MuxSession) -> bool:
        lacking = self.catalogue.is_short or len(self._held) < len(self.catalogue.attached)
        return lacking or any(circuit.streams for circuit in self.goaways.circuits_through(session.peer))

    async def _reserve(self, record: RouterRecord) -> NoReturn:
        """Be reachable through the router for as long as it is held."""
        leaving = self._leaving[record.peer]

        def granted(_: ReservationGranted) -> None:
            if not leaving.is_set():
                self._reserved.add(record.peer)
                self._notify()

        async with self._host.listening(_circuit(record.addresses[0], record.peer)):
            while True:
                try:
                    await keep_reservation(self._host, record.peer, granted, self._wall_clock)
                except ADMIT_ERRORS as exc:
                    logger.warning("no reservation", extra={"router": record.peer, "reason": exc})
                    self._reserved.discard(record.peer)
                    self._notify()
                await trio.sleep(self._spread(RESERVATION_RETRY))

    # ── all of them ──

    async def _follow_list(self) -> NoReturn:
        """Read the control plane's list: seldom when all is well, soon and then less and less often when it is not."""
        short_wait = FIRST_SHORT_SYNC
        while True:
            await self._sync()
            wait, short_wait = short_wait, min(2 * short_wait, self._monitor_interval)
            if not self.catalogue.is_short:
                wait, short_wait = SYNC_INTERVAL, FIRST_SHORT_SYNC
            with trio.move_on_after(wait * (1 + self._rng.random() / 10)):
                await self._missing.wait()
                await trio.sleep(wait and self._rng.random() * FIRST_SHORT_SYNC)

    def _spread(self, wait: float) -> float:
        """A wait that is stretched by up to a half: those who failed together do not come back together."""
        return max(wait, 0.0) * (1 + self._rng.random() / 2)

    async def _sync(self) -> None:
        try:
            info = await self._info()
        except (ControlPlaneError, RemoteProtocolError) as exc:
            logger.warning("the list of routers was not read", extra={"reason": exc})
        else:
            self._take(info)
        self._notify()

    def _take(self, info: MeshInfo) -> None:
        self.catalogue.update(info.routers, info.banned)
        if (complaint := self.catalogue.selection.complaint(self.catalogue.listed)) is not None:
            logger.warning("no router to attach to", extra={"reason": complaint})


def _circuit(address: Address, router: PeerId) -> Address:
    return Address((*address.with_peer(router).parts, ("p2p-circuit", None)))


def _has_tunnels(session: MuxSession) -> bool:
    return any(stream.protocol == DIAL_ID for stream in session.streams)
