"""What the control plane has to say to every member at once, signed, and kept until it is said."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from agentmesh.control_plane.authority import Authority, Rotation
from agentmesh.control_plane.policy.model import Policy
from agentmesh.control_plane.store import Store, until_settled
from agentmesh.events import Banned, KeyRotated, PolicyUpdated, sign_event
from agentmesh.runtime.guard import Signal
from agentmesh.types import PeerId

T = TypeVar("T")


class Herald:
    """Makes the changes that the mesh is told of, each together with the events that tell of it.

    Args:
        wall_clock: gives the seconds since 1970.

    Attributes:
        said: raised when there is something to publish.
    """

    def __init__(self, store: Store, authority: Authority, wall_clock: Callable[[], float]) -> None:
        self._store, self._authority, self._wall_clock = store, authority, wall_clock
        self.said = Signal()

    async def ban(self, peer: PeerId) -> list[PeerId]:
        """Ban a peer and whoever owns it; give all the peers that are out by that. Raises StoreError."""
        key, now = self._authority.signing_key, self._wall_clock()

        def tell(peers: list[PeerId]) -> list[bytes]:
            return [sign_event(key, Banned(other, now)) for other in peers]

        return await self._do(partial(self._store.access.ban, peer, now, tell))

    async def put_policy(self, policy: Policy) -> None:
        """Put a policy in force. Raises StoreError."""
        now = self._wall_clock()
        event = sign_event(self._authority.signing_key, PolicyUpdated(now))
        await self._do(partial(self._store.access.put_policy, policy, now, [event]))

    async def rotated(self, rotation: Rotation) -> None:
        """Tell of a key that took over, in the name of the one that retired. Raises StoreError."""
        event = sign_event(rotation.retired, KeyRotated(rotation.current.public, rotation.at))
        await self._do(partial(self._store.outbox.put, event, rotation.at))

    async def _do(self, change: Callable[[], Awaitable[T]]) -> T:
        result = await until_settled(change)
        self.said.set()
        return result
