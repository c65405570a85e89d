"""The other routers: what a router places on them, and asks of them."""

from collections.abc import Callable, Collection, Iterable
from typing import Protocol as Interface

import attrs
import trio

from agentmesh.abc import OpenStream
from agentmesh.protocols.directory.client import FAILURES, ask
from agentmesh.protocols.directory.events import Announcement, Found, Provide, Request, Status
from agentmesh.protocols.directory.figures import Figures, Placement
from agentmesh.protocols.directory.lookup import LOOKUP_PATIENCE, LOOKUP_TIMEOUT, Lookup
from agentmesh.protocols.directory.placement import closest
from agentmesh.protocols.directory.store import Record
from agentmesh.runtime.guard import Signal
from agentmesh.types import PeerId

REPLICATION = 3  # routers that hold a record, where the control plane does not say
REACH_TIMEOUT = 1.0  # seconds that a request waits for routers that are not reached yet
MIN_TTL = 0.001  # seconds that a record has to be good for still; 0 on the wire would withdraw it


class Federation(Interface):
    """The mesh's routers, as one of them knows the others."""

    @property
    def routers(self) -> Collection[PeerId]:
        """Those to which there is a session and that have admitted us; not this one."""
        ...

    async def reach_all(self) -> None:
        """Join the listed routers that are not joined yet, as far as that goes. It may be cancelled at any time."""
        ...

    async def refresh(self) -> bool:
        """Read the list of routers again, unless that was done within the last second, and join the new ones.

        Returns:
            Whether it was read.
        """
        ...


class Alone:
    """A federation of one router."""

    routers: Collection[PeerId] = ()

    async def reach_all(self) -> None:
        await trio.lowlevel.checkpoint()

    async def refresh(self) -> bool:
        await trio.lowlevel.checkpoint()
        return False


@attrs.frozen
class Neighbours:
    """Places records on other routers and asks them.

    Attributes:
        me: the router that does.
        open_stream: `Host.open_stream`.
        federation: who they are.
        replication: how many routers hold a record.
        figures: where placements are counted.
        timeout: seconds that one of them has to answer.
        patience: seconds that the slow are waited for with something in hand.
    """

    me: PeerId
    open_stream: OpenStream
    federation: Federation
    replication: Callable[[], int]
    figures: Figures
    timeout: float = LOOKUP_TIMEOUT
    patience: float = LOOKUP_PATIENCE

    @property
    def routers(self) -> frozenset[PeerId]:
        """All routers that there are, this one among them."""
        return frozenset({*self.federation.routers, self.me})

    async def reach_all(self) -> None:
        """Have sessions with the listed routers; those that are not reached in REACH_TIMEOUT are left out."""
        with trio.move_on_after(REACH_TIMEOUT):
            await self.federation.reach_all()

    async def refresh(self) -> bool:
        """Whether there may be routers now that there were not a moment ago."""
        with trio.move_on_after(REACH_TIMEOUT):
            return await self.federation.refresh()
        return False

    # ── placing ──

    async def place(self, record: Record, homes: Collection[PeerId], down: set[PeerId]) -> int:
        """Place a record on other routers.

        Args:
            record: what they are to hold.
            homes: they.
            down: routers that have just failed, which are not asked; those that fail now are added.
        Returns:
            How many of `homes` hold it now.
        """
        await trio.lowlevel.checkpoint()  # there may be very many records, and no home for any
        left = record.expires_at - trio.current_time()
        if left < MIN_TTL:
            return 0
        said = Announcement(record.key, record.addresses, record.sequence, 0.0 if record.withdrawn else left)
        results: list[Placement] = []

        async def place(home: PeerId) -> None:
            results.append(result := await self._place_one(Provide(said, record.provider), home))
            if result is Placement.FAILED:
                down.add(home)

        async with trio.open_nursery() as nursery:
            for home in homes:
                if home not in down:
                    nursery.start_soon(place, home)
        return results.count(Placement.PLACED)

    async def _place_one(self, request: Provide, home: PeerId) -> Placement:
        try:
            answer = await ask(self.open_stream, home, request, self.timeout)
        except FAILURES:
            result = Placement.FAILED
        else:  # a router that knows something newer needs nothing from us
            kept = answer.status in (Status.OK, Status.OUTDATED)
            result = Placement.PLACED if kept else Placement.REFUSED
        self.figures.count_placement(result)
        return result

    # ── asking ──

    async def look(self, request: Request, key: bytes, own: Iterable[Found], limit: int) -> Lookup:
        """Ask the routers closest to a key, all at once.

        Args:
            request: what.
            key: where that belongs.
            own: what this router knows itself.
            limit: how much is enough.
        Returns:
            The lookup, at its end.
        """
        routers = closest(key, self.federation.routers, self.replication())
        lookup = Lookup(own, len(routers), limit, trio.current_time(), self.timeout, self.patience)
        answered = Signal()

        async def ask_one(router: PeerId) -> None:
            try:
                answer = await ask(self.open_stream, router, request, self.timeout)
            except FAILURES:
                lookup.receive_failure(trio.current_time())
            else:
                lookup.receive_answer(answer, trio.current_time())
            answered.set()

        async with trio.open_nursery() as nursery:
            for router in routers:
                nursery.start_soon(ask_one, router)
            while not lookup.is_finished:
                with trio.move_on_at(lookup.deadline):
                    await answered.wait()
                lookup.handle_timeout(trio.current_time())
            nursery.cancel_scope.cancel()
        return lookup
