"""The streams of one mux: which there are, how they move through their table, and when they are gone."""

from collections.abc import Iterator

from agentmesh.errors import LocalProtocolError
from agentmesh.runtime.yamux.channel import Channel
from agentmesh.runtime.yamux.flow import ReceiveWindow, WindowBudget
from agentmesh.runtime.yamux.limits import MuxLimits
from agentmesh.runtime.yamux.states import OVER, TRANSITIONS, Input


class Channels:
    """Every stream that is not over, by its number; those that linger, by their deadlines.

    Invariant: a stream is here until both its directions have ended and what we queued for it has left.
    """

    def __init__(self, limits: MuxLimits) -> None:
        self.budget = WindowBudget(limits.max_session_window_bytes)
        self._limits = limits
        self._by_number: dict[int, Channel] = {}
        self._counts = [0, 0]  # by the parity of their number: who opened them
        self._lingering: dict[int, float] = {}  # number to deadline, in the order of the deadlines

    def __iter__(self) -> Iterator[Channel]:
        return iter(self._by_number.values())

    def get(self, number: int) -> Channel | None:
        return self._by_number.get(number)

    def count(self, number: int) -> int:
        """How many there are of the side that opens streams with numbers like this one."""
        return self._counts[number & 1]

    def add(self, number: int, flags_pending: int) -> Channel:
        window = ReceiveWindow(self._limits.max_window_bytes, self.budget)
        channel = self._by_number[number] = Channel(number, window, flags_pending)
        self._counts[number & 1] += 1
        return channel

    def holds(self, channel: Channel) -> bool:
        """Whether the stream still is; a peer may use the number of one that is gone again."""
        return self._by_number.get(channel.id) is channel

    def step(self, channel: Channel, got: Input) -> None:
        """Move a stream through its table. Raises LocalProtocolError where the table forbids it."""
        after = TRANSITIONS[channel.state, got]
        if after is None:
            raise LocalProtocolError(f"stream {channel.id}: {got.value} while {channel.state.value}")
        channel.state = after
        self.remove_if_over(channel)

    def remove_if_over(self, channel: Channel) -> None:
        if channel.state in OVER and channel.flushed and self.holds(channel):
            del self._by_number[channel.id]
            self._lingering.pop(channel.id, None)
            self._counts[channel.id & 1] -= 1
            channel.window.release()

    # ── closed by us, not yet ended by the peer ──

    @property
    def lingering(self) -> int:
        return len(self._lingering)

    @property
    def deadline(self) -> float | None:
        """When the first stream has lingered too long."""
        return next(iter(self._lingering.values()), None)

    def linger(self, channel: Channel, now: float) -> None:
        """Give a stream that was closed `linger_timeout` seconds to end; does nothing when it has."""
        if self.holds(channel):
            self._lingering[channel.id] = now + self._limits.linger_timeout

    def overdue(self, now: float) -> list[Channel]:
        """The streams that have lingered too long."""
        return [self._by_number[number] for number, deadline in self._lingering.items() if deadline <= now]
