"""The links that there are: one a peer."""

import itertools
from collections.abc import Collection

from agentmesh.errors import RejectedError
from agentmesh.protocols.floodsub.events import Role
from agentmesh.protocols.floodsub.limits import FloodsubLimits
from agentmesh.protocols.floodsub.link import Link, Outbox
from agentmesh.types import PeerId
from agentmesh.wire.framing import FrameReader


class Links:
    """Links by peer, and by the role of the peer."""

    def __init__(self, limits: FloodsubLimits) -> None:
        self._limits = limits
        self._by_peer: dict[PeerId, Link] = {}
        self._by_role: dict[Role, dict[Link, None]] = {role: {} for role in Role}
        self._numbers = itertools.count(1)

    def get(self, peer: PeerId) -> Link | None:
        return self._by_peer.get(peer)

    def of(self, role: Role) -> Collection[Link]:
        return self._by_role[role].keys()

    @property
    def all(self) -> Collection[Link]:
        return self._by_peer.values()

    def make(self, peer: PeerId, role: Role) -> Link:
        """Raises RejectedError when there are `max_links`."""
        limits = self._limits
        if len(self._by_peer) >= limits.max_links:
            raise RejectedError("there are max_links links already")
        outbox = Outbox(limits.max_outbox_messages, limits.max_outbox_bytes)
        link = Link(next(self._numbers), peer, role, outbox, FrameReader(limits.max_rpc_bytes))
        self._by_peer[peer] = link
        self._by_role[role][link] = None
        return link

    def remove(self, link: Link) -> None:
        del self._by_peer[link.peer], self._by_role[link.role][link]
