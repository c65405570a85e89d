"""Which routers a member has held, and when it had as many as it wants again after one of them went. Pure."""

import bisect


class Holding:
    """One member's routers over time.

    Args:
        wanted: how many it is to hold.
    """

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._since: list[float] = []
        self._held: list[frozenset[str]] = []

    def changed(self, routers: frozenset[str], now: float) -> None:
        """From now on it holds these. `now`: seconds that never go back."""
        if self.now != routers:
            self._since.append(now)
            self._held.append(routers)

    @property
    def now(self) -> frozenset[str]:
        return self._held[-1] if self._held else frozenset()

    @property
    def is_whole(self) -> bool:
        """Whether it holds as many as it wants."""
        return len(self.now) >= self._wanted

    def held(self, router: str, at: float) -> bool:
        """Whether it held a router at a moment."""
        place = bisect.bisect_right(self._since, at)
        return place > 0 and router in self._held[place - 1]

    def whole_again(self, router: str, at: float) -> float | None:
        """When, after a moment, it first held as many as it wants without this one; None when it never did."""
        for since, held in zip(self._since, self._held, strict=True):
            if since > at and router not in held and len(held) >= self._wanted:
                return since
        return None
