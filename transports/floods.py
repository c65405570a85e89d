"""Frames that carry nothing for us, and how many of them a peer may send: over HTTP/2 and over WebSocket alike."""

from agentmesh.errors import LimitExceededError

FLOOD_BURST = 500  # frames without data that may come at once: pings, settings, resets, empty data…
FLOOD_PER_SECOND = 50.0  # and how many of them the budget regains


class FloodBudget:
    """What one connection's peer has left of them."""

    def __init__(self) -> None:
        self._left = float(FLOOD_BURST)
        self._spent_at: float | None = None

    def spend(self, now: float) -> None:
        """Pay for one frame, or for one answer, that carries nothing for us.

        Raises:
            LimitExceededError: there is nothing left.
        """
        if self._spent_at is not None:
            self._left = min(FLOOD_BURST, self._left + (now - self._spent_at) * FLOOD_PER_SECOND)
        self._spent_at = now
        self._left -= 1
        if self._left < 0:
            raise LimitExceededError("too many frames that carry no data", limit="FLOOD_BURST")
