"""What becomes of a node that a router sends away: another router takes its place, and nothing under way is cut."""

import logging
from collections.abc import Callable

import attrs
import trio

from agentmesh.node.catalogue import Catalogue
from agentmesh.node.standing import State
from agentmesh.protocols import goaway
from agentmesh.protocols.goaway import GoAway, Reason
from agentmesh.runtime.config import LOW_SHARE
from agentmesh.runtime.host import Host
from agentmesh.runtime.registry import Protocol
from agentmesh.runtime.session import MuxSession
from agentmesh.types import PeerId

logger = logging.getLogger(__name__)

OVERLOADED_SHARE = 1 - LOW_SHARE  # of its members: what a router that is full sends away


class GoAways:
    """Hears the routers that a node is attached to. List `protocol()` where the host is built.

    Args:
        catalogue: how the node stands to each router.

    Attributes:
        received: how often a router sent us away, by reason; every one of them is there from the start, at 0.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.received: dict[Reason, int] = dict.fromkeys(Reason, 0)
        self._catalogue = catalogue
        self._on_sent_away: list[Callable[[PeerId, Reason], None]] = []
        self._host: Host

    def protocol(self) -> Protocol:
        return attrs.evolve(goaway.protocol(self._accepts, self._sent_away), run=self._run)

    def on_sent_away(self, callback: Callable[[PeerId, Reason], None]) -> None:
        """Have `callback(router, reason)` called, synchronously, when a router sends us away. It must not raise."""
        self._on_sent_away.append(callback)

    def circuits_through(self, router: PeerId) -> list[MuxSession]:
        """The sessions to other members whose path leads through a router."""
        found = [(session, session.address.circuit) for session in self._host.connections if session.address]
        return [session for session, circuit in found if circuit is not None and circuit[0].peer == router]

    async def _run(self, host: Host) -> None:
        self._host = host
        host.on_disconnect(self._catalogue.closed)
        await trio.lowlevel.checkpoint()

    def _accepts(self, router: PeerId) -> bool:
        """Nobody but a router that we are attached to may send us away. But one that we only pass through will not be
        there for long either, and what is new had better take another way.
        """
        if self._catalogue.state(router) is State.ATTACHED:
            return True
        self._catalogue.closing(router)
        self._retire_through(router)
        return False

    def _retire_through(self, router: PeerId) -> None:
        for session in self.circuits_through(router):
            self._host.connections.retire(session)

    def _sent_away(self, router: PeerId, message: GoAway) -> None:
        """What is new takes another way from now on; what is under way has until the router closes the session."""
        extra = {"router": router, "reason": message.reason.value, "retry_after": message.retry_after}
        logger.info("sent away", extra=extra)
        self.received[message.reason] += 1
        share = OVERLOADED_SHARE if message.reason is Reason.OVERLOADED else 1.0
        self._catalogue.sent_away(router, message.retry_after, trio.current_time(), share=share)
        self._retire_through(router)
        for callback in self._on_sent_away:
            callback(router, message.reason)
