"""The members that a router holds: what admission makes of a session, and who is being sent away."""

import math
from collections.abc import Iterable

import trio

from agentmesh.abc import Admission
from agentmesh.credentials import Credential
from agentmesh.errors import ErrorCode, RejectedError
from agentmesh.membership.gate import level_of
from agentmesh.router.federation import Federation
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.runtime.host import Host
from agentmesh.types import PeerId

SETTLED_TIME = 60.0  # seconds
TAG = "agentmesh-member"
TAG_VALUE = 10  # a session that was admitted against one that was not: 0


class Members:
    """Who is admitted at a router. A session of a member is tagged for as long as it is one, so that a trim takes
    strangers first.

    Args:
        admissions: whom the router admits.
        federation: told of each router that is admitted.
    """

    def __init__(self, admissions: AdmissionBook, federation: Federation) -> None:
        self._admissions = admissions
        self._federation = federation
        self._admitted: dict[PeerId, float] = {}  # since when, in the order in which they came
        self._leaving: set[PeerId] = set()
        self._held_back_until = -math.inf
        self._is_closed = False
        self._host: Host
        admissions.on_lapse(self._lapsed)

    async def run(self, host: Host) -> None:
        """Learn which host this is."""
        self._host = host
        self._federation.bind(host)
        await trio.lowlevel.checkpoint()

    @property
    def present(self) -> tuple[PeerId, ...]:
        """The members that are admitted, but for other routers and for those that are being sent away."""
        return tuple(peer for peer in self._admitted if peer not in self._leaving)

    @property
    def settled(self) -> tuple[PeerId, ...]:
        """Those of them that have been here for a while."""
        came_by = trio.current_time() - SETTLED_TIME
        return tuple(peer for peer in self.present if self._admitted[peer] <= came_by)

    @property
    def leaving(self) -> frozenset[PeerId]:
        """Those that were told to go, and whose sessions last a little longer."""
        return frozenset(self._leaving)

    @property
    def is_closed(self) -> bool:
        """Whether the router is stopping."""
        return self._is_closed

    def close(self) -> None:
        """Admit nobody any more."""
        self._is_closed = True

    def hold_back(self, seconds: float) -> None:
        """For so long, do not fill up to the high watermark: some were sent away so that there is room."""
        self._held_back_until = trio.current_time() + seconds

    def admit(self, peer: PeerId, credential: Credential) -> None:
        """Let a peer in whose credential has been verified.

        Raises:
            RejectedError: the router is about to stop, is at its high watermark, or admits no more peers.
        """
        if self._is_closed:
            raise RejectedError("the router is stopping", ErrorCode.SHUTDOWN)
        level = level_of(credential)
        if level is Admission.MEMBER and peer not in self._admitted and self._is_full:
            raise RejectedError("the router is at its high watermark")
        self._admissions.admit(peer, level, credential.expires_at)
        if level is Admission.ROUTER:
            self._admitted.pop(peer, None)
            self._federation.admitted(peer)
            return
        self._admitted.setdefault(peer, trio.current_time())
        if peer not in self._leaving:
            self._host.connections.tag(peer, TAG, TAG_VALUE)

    @property
    def _is_full(self) -> bool:
        most = self._host.config.connections.high_watermark - (trio.current_time() < self._held_back_until)
        return len(self._admitted) + len(self._federation.peers) >= most

    def send_away(self, peers: Iterable[PeerId]) -> None:
        """Count these members no more; their sessions stay until they are closed."""
        for peer in peers:
            self._leaving.add(peer)
            self._host.connections.untag(peer, TAG)

    def _lapsed(self, peer: PeerId) -> None:
        self._admitted.pop(peer, None)
        self._leaving.discard(peer)
        self._host.connections.untag(peer, TAG)
