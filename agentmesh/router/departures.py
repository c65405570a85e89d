"""How members leave a router that will not hold them any longer: told, given a moment, closed."""

import logging
import math
from collections.abc import Container, Sequence
from random import Random
from typing import NoReturn

import trio

from agentmesh.protocols.goaway import GoAway, Reason, Result, send_goaway
from agentmesh.router.federation import Federation
from agentmesh.router.members import Members
from agentmesh.runtime.config import ConnectionLimits
from agentmesh.runtime.host import Host
from agentmesh.types import PeerId

logger = logging.getLogger(__name__)

SHED_INTERVAL = 5.0  # seconds between two looks at how many members there are
OVERLOADED_RETRY = 300.0  # seconds for which those that were too many are to leave the router alone
GRACE = 5.0  # seconds from the go-away until the session is closed: for what is under way on it …
TUNNEL_GRACE = 30.0  # … and if that is a tunnel: as long as an agent lets its end of it live
MAX_TELLING = 64  # members that are told at once
AT_ONCE = 150  # members that are all told at once by a router that stops; one with more of them takes its time …
DRAINED_PER_SECOND = 50.0  # … so that those who take them in are not dialled by all at once …
MAX_SPREAD = 20.0  # … and this many seconds at most
SHED_PER_SECOND = 15.0  # one that is full is in less of a hurry
DEFAULT_RETRY = 30.0  # seconds, of a router that stops and does not say how long it will be away

Sent = tuple[Reason, Result]
SENT: tuple[Sent, ...] = tuple((reason, result) for reason in (Reason.DRAINING, Reason.OVERLOADED) for result in Result)


def spread_of(members: int, reason: Reason, within: float = math.inf) -> float:
    """The seconds in which so many members are told one after the other, if they are to be told `within` seconds."""
    if reason is Reason.OVERLOADED:
        return min(members / SHED_PER_SECOND, MAX_SPREAD)
    return 0.0 if members <= AT_ONCE else min(members / DRAINED_PER_SECOND, MAX_SPREAD, within * 2 / 3)


class Departures:
    """Sends members away.

    Args:
        members: who is there.
        federation: the other routers, who are never sent away.
        rng: chooses those who go when there are too many.
        elsewise: those who leave in a way of their own: the processes of agents.
        tunnels: those who have tunnels to agents open here.

    Attributes:
        sent: what became of the go-aways; all of SENT are there from the start, at 0.
    """

    def __init__(
        self,
        members: Members,
        federation: Federation,
        rng: Random,
        elsewise: Container[PeerId] = (),
        tunnels: Container[PeerId] = (),
    ) -> None:
        self.sent: dict[Sent, int] = dict.fromkeys(SENT, 0)
        self._members = members
        self._federation = federation
        self._rng = rng
        self._elsewise = elsewise
        self._tunnels = tunnels
        self._telling = trio.CapacityLimiter(MAX_TELLING)

    def surplus(self, limits: ConnectionLimits) -> list[PeerId]:
        """Who has to go for the router to be at its low watermark, when it is at the high one; nobody when it is not.

        Those who have hardly come, from another router perhaps that sent them away, go last. Strangers do not count: a
        trim closes their connections.
        """
        present, settled = self._ours(self._members.present), self._ours(self._members.settled)
        held = len(self._members.present) + len(self._federation.peers)
        if held < limits.high_watermark:
            return []
        surplus = min(held - limits.low_watermark, len(present))
        if surplus <= len(settled):
            return self._rng.sample(settled, surplus)
        new = [member for member in present if member not in set(settled)]
        return [*settled, *self._rng.sample(new, surplus - len(settled))]

    def _ours(self, members: Sequence[PeerId]) -> list[PeerId]:
        return [member for member in members if member not in self._elsewise]

    async def shed(self, host: Host) -> NoReturn:
        """Send away what is too many, until cancelled."""
        limits = host.config.connections
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(SHED_INTERVAL)
                if surplus := self.surplus(limits):
                    logger.warning("overloaded", extra={"members": len(self._members.present), "sent": len(surplus)})
                    self._members.hold_back(OVERLOADED_RETRY)
                    nursery.start_soon(self.send_away, host, surplus, GoAway(Reason.OVERLOADED, OVERLOADED_RETRY))

    async def drain(self, host: Host, ttl: float) -> None:
        """Send all members away, admit nobody any more, and return when they are gone.

        Args:
            ttl: seconds for which they are to leave the router alone; telling them takes no longer either.
        Cancellation: closes nothing; who has been told has been told.
        """
        self._members.close()
        goaway = GoAway(Reason.DRAINING, ttl or DEFAULT_RETRY)
        await self.send_away(host, self._ours(self._members.present), goaway, within=goaway.retry_after)

    async def send_away(
        self, host: Host, members: Sequence[PeerId], goaway: GoAway, *, within: float = math.inf
    ) -> None:
        """Tell these members, and close their sessions when their time is over. They count no more from now on.

        Args:
            within: seconds in which they are told; who is not by then is closed like the others.
        """
        self._members.send_away(members)
        now, step = trio.current_time(), spread_of(len(members), goaway.reason, within) / max(len(members), 1)
        async with trio.open_nursery() as nursery:
            for number, member in enumerate(members):
                nursery.start_soon(self._see_off, host, member, goaway, now + number * step, now + within)

    async def _see_off(self, host: Host, member: PeerId, goaway: GoAway, at: float, deadline: float) -> None:
        with trio.move_on_at(deadline):
            await trio.sleep_until(at)
            async with self._telling:
                self.sent[goaway.reason, await send_goaway(host.open_stream, member, goaway)] += 1
        sessions = host.connections.sessions_of(member)
        with trio.move_on_after(TUNNEL_GRACE if member in self._tunnels else GRACE):
            for session in sessions:
                await session.ended.wait()
        for session in host.connections.sessions_of(member):
            await session.aclose()
