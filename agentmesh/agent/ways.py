"""Which router the next connection is made to."""

import logging
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from random import Random

import trio

from agentmesh.agent.admissions import Admissions
from agentmesh.control_plane.routers import RouterRecord
from agentmesh.errors import DialError, RejectedError
from agentmesh.membership import Membership
from agentmesh.membership.entry import PLANE_ERRORS
from agentmesh.runtime.host import Host
from agentmesh.runtime.session import MuxSession
from agentmesh.types import Address, PeerId

logger = logging.getLogger(__name__)

LIST_AGE = 60.0  # seconds after which the mesh's list of routers is read again before a dial
LIST_TIMEOUT = 5.0  # seconds that reading it may take; then the last one has to do
AVOID_TIME = 60.0  # seconds in which a router that failed comes after all others
SHORT_LIVED = 30.0  # seconds that a connection has to last; else it counts as a failure of its router
MAX_LOOKS = 4  # dials of one address, to get to a router that has not just failed; the last is taken as it is


class Way(ABC):
    """Makes sessions to routers, one at a time, each new.

    Args:
        leaving: the routers that let a connection of ours go.
    """

    def __init__(self, leaving: Callable[[], Iterable[PeerId]]) -> None:
        self._leaving = leaving
        self._until: dict[PeerId, float] = {}

    @abstractmethod
    async def connect(self) -> MuxSession:
        """One more session; nobody is authenticated yet, but for who is at the other end.

        Raises:
            DialError: there is no router, or it does not answer.
        Cancellation: safe; no session is left.
        """

    def avoid(self, router: PeerId) -> None:
        """Another is better for a while, if there is one: this one failed, or would not let us in."""
        self._until[router] = trio.current_time() + AVOID_TIME

    @property
    def avoided(self) -> Set[PeerId]:
        """The routers that come after all others now."""
        for router in self._leaving():
            self.avoid(router)
        now = trio.current_time()
        self._until = {peer: until for peer, until in self._until.items() if now < until}
        return self._until.keys()


class ServerWay(Way):
    """To one address, whoever is behind it. What leads to several routers knows less of them than we do: a router
    that is stopping is among them still.

    Args:
        host: the process's.
        address: of a router, or of what leads to one of several.
        leaving: as of Way.
    """

    def __init__(self, host: Host, address: Address, leaving: Callable[[], Iterable[PeerId]]) -> None:
        super().__init__(leaving)
        self._host = host
        self._address = address

    async def connect(self) -> MuxSession:
        for _ in range(MAX_LOOKS - 1):
            session = await self._host.connect_unknown(self._address)
            if session.peer not in self.avoided:
                return session
            session.abort("another router is looked for")
        return await self._host.connect_unknown(self._address)


class ListWay(Way):
    """To the routers that the control plane lists.

    Args:
        host: the process's.
        membership: knows the list.
        leaving: as of Way.
        rng: decides between equals.
    """

    def __init__(
        self, host: Host, membership: Membership, leaving: Callable[[], Iterable[PeerId]], rng: Random
    ) -> None:
        super().__init__(leaving)
        self._host = host
        self._membership = membership
        self._rng = rng
        self._read_at = -math.inf
        self._dialing: Counter[PeerId] = Counter()
        self._made: dict[MuxSession, float] = {}  # when

    async def connect(self) -> MuxSession:
        routers = await self._routers()
        self._take_stock()
        held = Counter(session.peer for session in self._host.connections) + self._dialing
        router = choose(routers, held, self.avoided, self._rng)
        if router is None:
            raise DialError("the control plane lists no router")
        self._dialing[router.peer] += 1
        try:
            session = await self._host.connect_anew(router.peer, router.addresses)
        except DialError:
            self.avoid(router.peer)
            raise
        finally:
            self._dialing[router.peer] -= 1
        self._made[session] = trio.current_time()
        return session

    async def _routers(self) -> Sequence[RouterRecord]:
        """Those that are listed and not banned, by the last list that could be read."""
        now = trio.current_time()
        if now >= self._read_at + LIST_AGE or not self._membership.mesh_info.routers:
            await self._read_list()
        return [one for one in self._membership.mesh_info.routers if one.peer not in self._membership.bans]

    async def _read_list(self) -> None:
        reason: object = f"no answer within {LIST_TIMEOUT} s"
        with trio.move_on_after(LIST_TIMEOUT):
            try:
                await self._membership.info()
            except PLANE_ERRORS as exc:
                reason = exc
            else:
                self._read_at = trio.current_time()
                return
        logger.warning("the list of routers was not read", extra={"reason": reason})

    def _take_stock(self) -> None:
        """What has become of the connections since the last dial."""
        now = trio.current_time()
        for session, made_at in list(self._made.items()):
            if not session.is_open:
                del self._made[session]
                if now < made_at + SHORT_LIVED:
                    self.avoid(session.peer)


class Dialing:
    """Makes connections that are authenticated, each by itself. `bind` it before it is used.

    Args:
        admissions: where the process is admitted.
    """

    def __init__(self, admissions: Admissions) -> None:
        self._admissions = admissions
        self._way: Way

    def bind(self, way: Way) -> None:
        """This is how routers are reached."""
        self._way = way

    async def dial(self) -> MuxSession:
        """One more session to a router, which has let us in.

        Raises:
            DialError: no router answers.
            Otherwise as `Admissions.enter`.
        Cancellation: safe; no session is left.
        """
        session, is_in = await self._way.connect(), False
        try:
            await self._admissions.enter(session)
            is_in = True
        except RejectedError:
            self._way.avoid(session.peer)
            raise
        finally:
            if not is_in:
                session.abort("not let in")
        return session


def choose(
    routers: Sequence[RouterRecord], held: Mapping[PeerId, int], avoided: Set[PeerId], rng: Random
) -> RouterRecord | None:
    """The router with the fewest of our connections, of equals any; but first those that have not just failed.

    Args:
        held: connections, those being made among them.
    """
    if not routers:
        return None
    return min(routers, key=lambda one: (one.peer in avoided, held.get(one.peer, 0), rng.random()))
