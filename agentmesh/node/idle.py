"""Sessions that nobody uses any more: a while after its calls a node holds its routers again, and nothing else.

What it dialled for a call is a circuit, and perhaps a session to a router of the callee's. Each costs that router
memory and a place. A circuit goes first, and as long after the last of them the session to the router that carried it.
"""

import logging
from collections.abc import Callable, Sequence

import attrs
import trio

from agentmesh.abc import Direction
from agentmesh.node.catalogue import Catalogue
from agentmesh.node.standing import HELD
from agentmesh.runtime.host import Host
from agentmesh.runtime.session import MuxSession
from agentmesh.types import PeerId

logger = logging.getLogger(__name__)

LOOKS = 4  # in the time after which a session counts as idle


@attrs.frozen
class Seen:
    """What was seen of a session: how many streams it had carried, since when, by the clock of the looks."""

    streams: int
    since: float


class IdleSessions:
    """Closes sessions that this node dialled and nobody needs.

    Args:
        host: whose.
        catalogue: the routers that the node holds.
        circuits_through: the sessions whose path leads through a router.
        timeout: seconds without a stream after which a session is closed, up to a quarter more; infinite for never.
    """

    def __init__(
        self,
        host: Host,
        catalogue: Catalogue,
        circuits_through: Callable[[PeerId], Sequence[MuxSession]],
        timeout: float,
    ) -> None:
        self._host = host
        self._catalogue = catalogue
        self._circuits_through = circuits_through
        self._timeout = timeout
        self._seen: dict[MuxSession, Seen] = {}

    async def run(self) -> None:
        while True:
            await trio.sleep(self._timeout / LOOKS)
            await self._close(self.look(trio.current_time()))

    async def _close(self, sessions: Sequence[MuxSession]) -> None:
        async with trio.open_nursery() as nursery:
            for session in sessions:
                logger.debug("idle", extra={"peer": session.peer})
                self._host.connections.retire(session)
                nursery.start_soon(session.aclose)

    def look(self, now: float) -> list[MuxSession]:
        """The sessions that have been idle for long enough by now."""
        self._seen = {session: self._see(session, now) for session in self._host.connections if self._is_ours(session)}
        return [session for session, seen in self._seen.items() if now - seen.since >= self._timeout]

    def _see(self, session: MuxSession, now: float) -> Seen:
        before = self._seen.get(session)
        is_used = session.streams or session.streams_unsent
        if before is None or is_used or session.streams_begun != before.streams:
            return Seen(session.streams_begun, now)
        return before

    def _is_ours(self, session: MuxSession) -> bool:
        return (
            session.direction is Direction.OUTBOUND
            and self._catalogue.state(session.peer) not in HELD
            and not self._circuits_through(session.peer)
        )
