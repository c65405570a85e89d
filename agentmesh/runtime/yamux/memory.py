"""What the streams of a session, and those of a whole host, take of this process's memory."""

import sys
from collections.abc import Callable


class Memory:
    """Counts bytes for one session, and reports them to the host's own count.

    Args:
        max_growth: by how many bytes all windows together may grow beyond their first size.
        whole: the host's, when there is one.

    Attributes:
        received: bytes that wait for applications to take them.
        queued: bytes that wait for the link, or for the peer's credit.
        growth_left: what windows may still grow.
    """

    __slots__ = ("_whole", "growth_left", "queued", "received")

    def __init__(self, max_growth: int, whole: "Memory | None" = None) -> None:
        self.received = self.queued = 0
        self.growth_left = max_growth
        self._whole = whole

    @property
    def held(self) -> int:
        return self.received + self.queued

    def receive(self, size: int) -> None:
        """Bytes came; fewer than none when they were taken, or dropped."""
        self.received += size
        if self._whole is not None:
            self._whole.received += size

    def queue(self, size: int) -> None:
        """Bytes were queued; fewer than none when they left, or were dropped."""
        self.queued += size
        if self._whole is not None:
            self._whole.queued += size

    def grow(self, wanted: int) -> int:
        """Let a window grow by what is left for it, and say by how much; fewer than none gives growth back."""
        whole = self._whole
        grown = min(wanted, self.growth_left, wanted if whole is None else whole.growth_left)
        self.growth_left -= grown
        if whole is not None:
            whole.growth_left -= grown
        return grown

    def release(self, max_growth: int) -> None:
        """The session is over: the host has nothing of it any more."""
        if self._whole is not None:
            self._whole.receive(-self.received)
            self._whole.queue(-self.queued)
            self._whole.grow(self.growth_left - max_growth)
            self._whole = None


class HostMemory(Memory):
    """The count of all sessions of a host.

    Args:
        max_growth: as of `Memory`.
        max_held: what they may hold together.
        relieve: called by `check` while they hold more.
    """

    __slots__ = ("_max_held", "_relieve")

    def __init__(
        self, max_growth: int = sys.maxsize, max_held: int = sys.maxsize, relieve: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(max_growth)
        self._max_held = max_held
        self._relieve = relieve

    @property
    def is_full(self) -> bool:
        return self.held > self._max_held

    def check(self) -> None:
        """To be called when a session has received bytes and acted on them."""
        if self.is_full:
            self._relieve()
