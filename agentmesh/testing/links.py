"""The hosts of the simulated network, and the links between them."""

import math
import random

import attrs
import trio

from agentmesh.transports.pipes import BUFFER_BYTES

SEND_BUFFER_BYTES = 64 * 1024  # that a sender may have given to a busy link before it waits
MAX_WINDOW_BYTES = 16 * 1024 * 1024


@attrs.frozen
class Conditions:
    """How the link between two hosts is, in either direction."""

    latency: float = 0.0  # seconds one way
    jitter: float = 0.0  # seconds at most, added to a segment's latency; segments do not overtake each other
    bandwidth: float = math.inf  # bytes a second, shared by all connections of the direction
    reset_probability: float = 0.0  # of each segment sent, that the connection is reset in its stead
    reset_at: int | None = None  # bytes sent one way, after which a connection is reset

    @property
    def window(self) -> int:
        """Bytes of one direction of a connection that may be under way or unread: what fills the link and a buffer."""
        delay = self.latency + self.jitter
        return BUFFER_BYTES + (int(min(self.bandwidth * delay, MAX_WINDOW_BYTES)) if delay else 0)

    def delay(self, chance: random.Random) -> float:
        """Seconds that the next segment is under way."""
        return self.latency + (chance.uniform(0, self.jitter) if self.jitter else 0.0)


class SimulatedHost:
    """A host of the network. A frozen one neither reads nor writes, and says so to nobody."""

    def __init__(self, name: str, ip: str) -> None:
        self.name = name
        self.ip = ip
        self._thawed = trio.Event()
        self._thawed.set()

    @property
    def frozen(self) -> bool:
        return not self._thawed.is_set()

    def freeze(self) -> None:
        if not self.frozen:
            self._thawed = trio.Event()

    def thaw(self) -> None:
        self._thawed.set()

    async def wait_thawed(self) -> None:
        await self._thawed.wait()


class Lane:
    """One direction of the link between two hosts, shared by their connections.

    Attributes:
        blocked: whether it loses everything.
        losses: how often it was blocked, so that who was under way can tell.
    """

    def __init__(self, source: SimulatedHost, target: SimulatedHost, conditions: Conditions) -> None:
        self.source = source
        self.target = target
        self.conditions = conditions
        self.blocked = False
        self.losses = 0
        self._free_at = -math.inf

    @property
    def ready_at(self) -> float:
        """When there is room in the send buffer again."""
        return self._free_at - SEND_BUFFER_BYTES / self.conditions.bandwidth

    def arrival(self, size: int, chance: random.Random) -> float:
        """Send `size` bytes behind what is being sent, and say when they arrive."""
        self._free_at = max(trio.current_time(), self._free_at) + size / self.conditions.bandwidth
        return self._free_at + self.conditions.delay(chance)
