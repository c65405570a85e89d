"""The messages that passed lately: what is known is not passed on again. `now` comes from the caller."""

from collections import OrderedDict


class SeenCache:
    """Names of messages, each for the same time.

    Args:
        max_seen: how many are known at most; the oldest is forgotten first.
        ttl: seconds that each is known.
    """

    def __init__(self, max_seen: int, ttl: float) -> None:
        self._max_seen = max_seen
        self._ttl = ttl
        self._expires_at: OrderedDict[bytes, float] = OrderedDict()  # in the order in which they expire

    def add(self, id: bytes, now: float) -> bool:
        """Know a message. False when it is known already: that gives it no more time."""
        self.expire(now)
        if id in self._expires_at:
            return False
        self._expires_at[id] = now + self._ttl
        if len(self._expires_at) > self._max_seen:
            self._expires_at.popitem(last=False)
        return True

    def has(self, id: bytes, now: float) -> bool:
        self.expire(now)
        return id in self._expires_at

    def expire(self, now: float) -> None:
        """Forget those whose time is over."""
        while self._expires_at and next(iter(self._expires_at.values())) <= now:
            self._expires_at.popitem(last=False)

    def __len__(self) -> int:
        return len(self._expires_at)
