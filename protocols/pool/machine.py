"""The two ends of a control stream, sans-IO: the agent that joins (AgentSide), the router that it joins (RouterSide).

Call order for a driver: after a command, `receive_data` or `handle_timeout`, send `data_to_send()`, then act on
`next_event()`. `side` has what both do, and the table.
"""

import math

from agentmesh.errors import LocalProtocolError
from agentmesh.protocols.pool import events
from agentmesh.protocols.pool.beat import HEARTBEAT_INTERVAL, Beat
from agentmesh.protocols.pool.side import GREETING_TIMEOUT, Side, State
from agentmesh.protocols.pool.values import MAX_STREAM_ID, Ack, Drain, Hello, Message, Metadata, Phase, Stats
from agentmesh.protocols.pool.wire import Kind


class AgentSide(Side):
    """An agent's end of one connection. `accept_open` decides on each open that arrives."""

    mine = (Hello, Metadata, Stats)
    untyped = Kind.ACK

    def send_hello(self, hello: Hello, now: float) -> None:
        """Ask to join. Raises LocalProtocolError when that was asked before."""
        self.say(hello)
        self.greet_by = now + GREETING_TIMEOUT

    def send_metadata(self, hello: Hello) -> None:
        """Raises LocalProtocolError when the connection is not open, or four of them are unanswered."""
        self.say(Metadata(hello))

    def send_stats(self, stats: Stats) -> None:
        """Raises LocalProtocolError when the connection is not open."""
        self.say(stats)

    def accept_open(self, stream_id: int) -> bool:
        """Take an open, or not: none behind the last one that a drain has named, none before the ack, none twice."""
        late = (self.ours.is_settled or self.theirs.is_settled) and stream_id > self.last_stream_id
        if self.state is not State.OPEN or late or stream_id in self.open_streams:
            return False
        self.open_streams.add(stream_id)
        self.last_stream_id = max(self.last_stream_id, stream_id)
        return True

    def take_drain(self, drain: Drain, now: float) -> None:
        if drain.phase is Phase.SETTLED and not self.ours.is_settled:  # opens that it made may be under way still
            self.last_stream_id = max(self.last_stream_id, drain.last_stream_id % MAX_STREAM_ID)
        super().take_drain(drain, now)

    def hear(self, message: Message, now: float) -> None:
        assert isinstance(message, Ack)
        if self.greet_by == math.inf:
            self._events.append(events.MetadataAcknowledged(message))
            return
        self.greet_by = math.inf
        self.beat.heard(now)
        self._events.append(events.Joined(message) if message.registered else events.Refused(message))


class RouterSide(Side):
    """A router's end. `begin_open` numbers each open before it is sent."""

    mine = Ack
    untyped = Kind.HELLO

    def __init__(self, now: float, interval: float = HEARTBEAT_INTERVAL) -> None:
        super().__init__(now, interval)
        self.greet_by = now + GREETING_TIMEOUT

    def send_ack(self, ack: Ack, now: float) -> None:
        """Answer a hello, or metadata. An ack that is not `registered` finishes the machine when it is sent.

        Raises:
            LocalProtocolError: nothing waits for an ack, or the connection is registered already.
        """
        if self.state is State.GREETED:
            self.beat = Beat(now, self.beat.interval)
        self.say(ack)

    def begin_open(self) -> int:
        """The number of a new open. Raises LocalProtocolError when the connection is not open, or drains."""
        if self.state is not State.OPEN or self.is_draining:
            raise LocalProtocolError("nothing is opened on this connection")
        self.last_stream_id += 1
        self.open_streams.add(self.last_stream_id)
        return self.last_stream_id

    def returned_by(self, last_stream_id: int) -> frozenset[int]:
        return frozenset(stream_id for stream_id in self.open_streams if stream_id > last_stream_id)

    def hear(self, message: Message, now: float) -> None:
        if isinstance(message, Hello):
            self.greet_by = math.inf
            self._events.append(events.HelloReceived(message))
        elif isinstance(message, Metadata):
            self._events.append(events.MetadataReceived(message.hello))
        else:
            assert isinstance(message, Stats)
            self._events.append(events.StatsReceived(message))
