"""Whether a node can be dialled without a router, as its routers find out by dialling it back."""

import enum
import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import NoReturn

import trio

from agentmesh.protocols.dialback import ASK_ERRORS, ask, stands_for
from agentmesh.runtime.host import Host
from agentmesh.types import Address, PeerId

logger = logging.getLogger(__name__)

CHECK_INTERVAL = 900.0  # seconds between two dial-backs by a router
RETRY_INTERVAL = 60.0  # the same when the router did not answer
SPREAD = 0.1  # by which either may be longer: a fleet does not ask at once


class Reachability(enum.StrEnum):
    """What a node makes of the addresses that it listens on."""

    PRIVATE = "private"
    """It tells them as they are, and nobody tries them beforehand. Others reach it through its routers."""
    AUTO = "auto"
    """It tells those at which a router has just reached it, and others are dialled there before a circuit is tried."""


class DirectAddresses:
    """Where a node can be dialled without a router. Circuits through its routers there are all the same.

    Args:
        mode: AUTO has the routers asked; PRIVATE takes every address that the host listens on.
        host: the node's.
        rng: spreads the requests of a fleet.

    Attributes:
        is_auto: whether routers are asked.
    """

    def __init__(self, mode: Reachability, host: Host, rng: Random) -> None:
        self.is_auto = mode is Reachability.AUTO
        self._host = host
        self._rng = rng
        self._reached: dict[PeerId, tuple[Address, ...]] = {}  # by which router
        self._on_change: list[Callable[[], None]] = []
        self._moved = trio.Event()
        self._listened_before = self._listening
        host.on_listening(self._look)

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Those to tell others, each ending in /p2p/<peer>. Of AUTO: where one of the routers that are held got through
        the last time that it tried.
        """
        if not self.is_auto:
            return self._listening
        found = dict.fromkeys(address for reached in self._reached.values() for address in reached)
        return tuple(one.with_peer(self._host.peer) for one in found if self._is_listened_on(one))

    def on_change(self, callback: Callable[[], None]) -> None:
        """Have `callback()` called, synchronously, when `addresses` may be others. It must not raise."""
        self._on_change.append(callback)

    async def keep_checked(self, router: PeerId) -> NoReturn:
        """Have a router that is held dial us back, again and again, until cancelled: every quarter of an hour, and at
        once when the host listens elsewhere. What it reached counts for as long as this runs. PRIVATE asks nobody.
        """
        if not self.is_auto:
            await trio.sleep_forever()
        try:
            while True:
                moved = self._moved
                wait = await self._check(router)
                with trio.move_on_after(wait * (1 + self._rng.random() * SPREAD)):
                    await moved.wait()
        finally:
            self._take(router, ())

    async def _check(self, router: PeerId) -> float:
        """One dial-back. Returns the seconds until the next."""
        if not (listening := self._listening):
            await trio.lowlevel.checkpoint()
            self._take(router, ())
            return CHECK_INTERVAL
        try:
            reached = await ask(self._host.open_stream, router, listening)
        except ASK_ERRORS as exc:
            logger.info("not dialled back", extra={"router": router, "reason": str(exc) or "no answer in time"})
            self._take(router, ())
            return RETRY_INTERVAL
        logger.info("dialled back", extra={"router": router, "reached": " ".join(map(str, reached))})
        self._take(router, reached)
        return CHECK_INTERVAL

    def _take(self, router: PeerId, reached: Sequence[Address]) -> None:
        before = self.addresses
        self._reached.pop(router, None)
        if reached:
            self._reached[router] = tuple(reached)
        if self.addresses != before:
            self._tell()

    @property
    def _listening(self) -> tuple[Address, ...]:
        return tuple(address for address in self._host.addresses if address.circuit is None)

    def _is_listened_on(self, reached: Address) -> bool:
        return any(stands_for(address, reached) for address in self._listening)

    def _look(self) -> None:
        """The host listens elsewhere, perhaps only by circuits."""
        if (listening := self._listening) != self._listened_before:
            self._listened_before = listening
            moved, self._moved = self._moved, trio.Event()
            moved.set()
            self._tell()

    def _tell(self) -> None:
        for callback in self._on_change:
            callback()
