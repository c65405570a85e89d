"""Two state machines, and a wire between them that cuts and delays.

    pair = Pair(Pinger(), Echo(), latency=0.1)
    pair.one.machine.send_ping(payload, pair.now)
    pair.run(sizes=[1, 7])
    assert pair.one.events == [PongReceived(…)]

No task, no clock, no stream: what a property test of a protocol needs and nothing that makes it slow.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from agentmesh.runtime.messages import Machine

MAX_DELIVERIES = 100_000  # in one `run`: machines that answer each other for ever are found by it

EventT = TypeVar("EventT")
OneT = TypeVar("OneT", bound=Machine[object])
OtherT = TypeVar("OtherT", bound=Machine[object])
MachineT = TypeVar("MachineT", bound=Machine[object])


class Untimed(Generic[EventT]):
    """Makes a `Machine` of one that knows no time and returns its events.

    Args:
        receive_data: takes bytes; what it returns is an event, unless it is None.
        data_to_send: gives the bytes to send, b"" when there are none.
    """

    deadline = float("inf")

    def __init__(self, receive_data: Callable[[bytes], EventT | None], data_to_send: Callable[[], bytes]) -> None:
        self._receive = receive_data
        self._send = data_to_send
        self._events: deque[EventT] = deque()

    def receive_data(self, data: bytes, now: float) -> None:
        event = self._receive(data)
        if event is not None:
            self._events.append(event)

    def handle_timeout(self, now: float) -> None:
        """There is no time that could be over."""

    def data_to_send(self) -> bytes:
        return self._send()

    def next_event(self) -> EventT | None:
        return self._events.popleft() if self._events else None


class PairEnd(Generic[MachineT]):
    """One end of a `Pair`.

    Attributes:
        machine: the machine.
        events: what has come out of it, oldest first.
    """

    def __init__(self, machine: MachineT) -> None:
        self.machine = machine
        self.events: list[object] = []
        self._incoming: deque[tuple[float, bytes]] = deque()  # time of arrival; b"" is the end

    @property
    def next_arrival(self) -> float | None:
        """When the next bytes for it arrive, or have arrived; None when nothing is under way."""
        return self._incoming[0][0] if self._incoming else None

    def expect(self, data: bytes, at: float) -> None:
        """Put bytes on the wire to this end."""
        self._incoming.append((at, data))

    def deliver(self, now: float, max_bytes: int | None) -> int:
        """Give the machine at most `max_bytes` of what has arrived, all of it if None; how many bytes those were."""
        taken = bytearray()
        while self._incoming and self._incoming[0][0] <= now and (max_bytes is None or len(taken) < max_bytes):
            at, data = self._incoming.popleft()
            if not data:
                if taken:
                    self._incoming.appendleft((at, data))
                break
            room = len(data) if max_bytes is None else max_bytes - len(taken)
            taken += data[:room]
            if data[room:]:
                self._incoming.appendleft((at, data[room:]))
        self.machine.receive_data(bytes(taken), now)
        self._collect()
        return len(taken)

    def handle_timeout(self, now: float) -> None:
        """Tell the machine the time, if it wants to know."""
        if now >= self.machine.deadline:
            self.machine.handle_timeout(now)
            self._collect()

    def _collect(self) -> None:
        while (event := self.machine.next_event()) is not None:
            self.events.append(event)


class Pair(Generic[OneT, OtherT]):
    """Two machines joined by a wire.

    Args:
        one: a machine.
        other: the machine that it talks to.
        now: the time at the beginning, in seconds.
        latency: seconds that bytes are under way.

    Attributes:
        one: the end of the first machine.
        other: the end of the second.
        now: the time.
    """

    def __init__(self, one: OneT, other: OtherT, *, now: float = 0.0, latency: float = 0.0) -> None:
        self.one = PairEnd(one)
        self.other = PairEnd(other)
        self.now = now
        self._latency = latency

    def flush(self) -> None:
        """Put on the wire what the machines have to send. `deliver`, `advance` and `run` do it by themselves."""
        for sender, receiver in ((self.one, self.other), (self.other, self.one)):
            if data := sender.machine.data_to_send():
                receiver.expect(data, self.now + self._latency)

    def close(self, end: PairEnd[OneT] | PairEnd[OtherT]) -> None:
        """Let `end` stop sending: behind all that it has sent the other machine gets b""."""
        self.flush()
        peer = self.other if end is self.one else self.one
        peer.expect(b"", self.now + self._latency)

    def deliver(self, to: PairEnd[OneT] | PairEnd[OtherT], max_bytes: int | None = None) -> bool:
        """Deliver the next bytes that have arrived for an end, or the end itself.

        Args:
            to: `pair.one` or `pair.other`.
            max_bytes: at most this many at once; everything that has arrived if None.
        Returns:
            Whether there was anything.
        Raises:
            Whatever the machine raises for it.
        """
        self.flush()
        arrival = to.next_arrival
        if arrival is None or arrival > self.now:
            return False
        to.deliver(self.now, max_bytes)
        self.flush()
        return True

    def advance(self, seconds: float) -> None:
        """Let time pass; machines whose deadline it reaches are told."""
        self.flush()
        self.now += seconds
        self.one.handle_timeout(self.now)
        self.other.handle_timeout(self.now)
        self.flush()

    def run(self, sizes: Iterable[int] = ()) -> None:
        """Deliver everything, in turn, until neither machine has anything more to say. Time passes only on the wire.

        Args:
            sizes: how many bytes to deliver at once, over and over; all that have arrived if empty.
        Raises:
            AssertionError: they never come to rest.
            Whatever a machine raises.
        """
        size = itertools.cycle(list(sizes) or [None])
        self.flush()
        for _ in range(MAX_DELIVERIES):
            delivered = [self.deliver(end, next(size)) for end in (self.one, self.other)]
            if any(delivered):
                continue
            arrivals = [at for end in (self.one, self.other) if (at := end.next_arrival) is not None]
            if not arrivals:
                return
            self.advance(min(arrivals) - self.now)
        raise AssertionError(f"the machines still talk after {MAX_DELIVERIES} deliveries each")
