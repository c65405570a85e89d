"""The streams of one mux: which there are, how they move through their table, and when they are gone."""

import math
from collections.abc import Iterator

from agentmesh.errors import LocalProtocolError
from agentmesh.runtime.yamux.channel import Channel
from agentmesh.runtime.yamux.flow import ReceiveWindow
from agentmesh.runtime.yamux.limits import MuxLimits
from agentmesh.runtime.yamux.memory import Memory
from agentmesh.runtime.yamux.states import OVER, TRANSITIONS, Input


class Deadlines:
    """Streams by their numbers, each to be over within the same time.

    Args:
        timeout: seconds.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._by_number: dict[int, float] = {}  # in the order of the deadlines

    def __len__(self) -> int:
        return len(self._by_number)

    @property
    def first(self) -> float:
        """math.inf when there is none."""
        return next(iter(self._by_number.values()), math.inf)

    def begin(self, number: int, now: float) -> None:
        """Set a stream's deadline, unless it has one."""
        self._by_number.setdefault(number, now + self._timeout)

    def end(self, number: int) -> None:
        self._by_number.pop(number, None)

    def overdue(self, now: float) -> list[int]:
        return [number for number, deadline in self._by_number.items() if deadline <= now]


class Channels:
    """Every stream that is not over, by its number; those that linger, by their deadlines.

    Invariant: a stream is here until both its directions have ended and what we queued for it has left.
    """

    def __init__(self, limits: MuxLimits, memory: Memory) -> None:
        self._memory = memory
        self._limits = limits
        self._by_number: dict[int, Channel] = {}
        self._counts = [0, 0]  # by the parity of their number: who opened them
        self._lingering = Deadlines(limits.linger_timeout)  # closed by us, not yet ended by the peer
        self._stalled = Deadlines(limits.stall_timeout)  # bytes wait, and the peer gives no credit

    def __iter__(self) -> Iterator[Channel]:
        return iter(self._by_number.values())

    def get(self, number: int) -> Channel | None:
        return self._by_number.get(number)

    def count(self, number: int) -> int:
        """How many there are of the side that opens streams with numbers like this one."""
        return self._counts[number & 1]

    def add(self, number: int, flags_pending: int) -> Channel:
        window = ReceiveWindow(self._limits.max_window_bytes, self._memory)
        channel = self._by_number[number] = Channel(number, window, flags_pending, self._memory)
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
        if after is not channel.state:
            channel.state = after
            self.remove_if_over(channel)

    def remove_if_over(self, channel: Channel) -> None:
        if channel.state in OVER and channel.flushed and self.holds(channel):
            del self._by_number[channel.id]
            self._lingering.end(channel.id)
            self._stalled.end(channel.id)
            self._counts[channel.id & 1] -= 1
            channel.window.release()

    # ── what peers let wait ──

    @property
    def lingering(self) -> int:
        return len(self._lingering)

    @property
    def deadline(self) -> float | None:
        """When the first stream has lingered or stalled too long."""
        first = min(self._lingering.first, self._stalled.first)
        return None if first == math.inf else first

    def linger(self, channel: Channel, now: float) -> None:
        """Give a stream that was closed `linger_timeout` seconds to end; does nothing when it has."""
        if self.holds(channel):
            self._lingering.begin(channel.id, now)

    def judge_stall(self, channel: Channel, now: float) -> None:
        """Give the peer `stall_timeout` seconds for credit, if nothing else keeps the stream's bytes."""
        if channel.queued and not channel.send_credit and self.holds(channel):
            self._stalled.begin(channel.id, now)
        else:
            self._stalled.end(channel.id)

    def overdue(self, now: float) -> list[Channel]:
        """The streams that have lingered or stalled too long."""
        numbers = dict.fromkeys(self._lingering.overdue(now) + self._stalled.overdue(now))
        return [self._by_number[number] for number in numbers]
