"""One connection of an agent: its session, its control stream, and the streams that its router opened on it."""

import trio

from agentmesh.abc import Stream
from agentmesh.errors import ErrorCode
from agentmesh.pool.agent.sampling import QueueWait, backlog_of
from agentmesh.pool.agent.scaling import Report
from agentmesh.protocols.pool import Ack, AgentSide, Control, DrainReason, Scaling, Stats
from agentmesh.runtime.session import MuxSession


class AgentLink:
    """The connection from its hello on.

    Attributes:
        joined: set when the router has taken it; `ack` is what it said then, or last.
        opens: the streams, by the numbers of their opens.
    """

    def __init__(self, connection_id: str, session: MuxSession, control: Control[AgentSide], now: float) -> None:
        self.connection_id = connection_id
        self.session = session
        self.control = control
        self.joined = trio.Event()
        self.ack: Ack | None = None
        self.opens: dict[int, Stream] = {}
        self.open_failures = 0
        self._wait = QueueWait(now)
        self._backlog = self._room = 0
        self._target_wait = 0.0

    def look(self, now: float) -> None:
        """Once more at what waits to be sent."""
        self._backlog, self._room = backlog_of(self.session)
        self._wait.look(self._backlog, self.session.statistics().bytes_sent, now)

    def note_open(self, took: float, failed: bool) -> None:
        """A target answered, or did not. It is recorded, and no reason for anything."""
        self._target_wait = max(took, self._target_wait / 2)
        self.open_failures += failed

    def report(self, now: float) -> Report:
        """For the controller."""
        beat = self.control.machine.beat
        return Report(
            active_streams=len(self.opens),
            queue_pressure=min(self._backlog / self._room, 1.0) if self._room else 0.0,
            queue_wait=self._wait.percentile,
            sent_rate=self._wait.rate,
            rtt=beat.rtt,
            transport_errors=int(beat.is_overdue(now)),
            open_failures=self.open_failures,
            target_wait=self._target_wait,
        )

    def drain(self, reason: DrainReason, timeout: float, now: float) -> None:
        """Begin to leave, unless that has begun, or the peer has just gone."""
        machine = self.control.machine
        if not (machine.is_finished or machine.ours.has_begun):
            self.control.tell(lambda machine: machine.send_drain(reason, now, timeout))

    def tell_stats(self, scaling: Scaling | None) -> None:
        """For the router."""
        stats = Stats(
            active_streams=len(self.opens),
            queued_bytes=self._backlog,
            queue_limit_bytes=self._room,
            queue_wait_ms=round(self._wait.percentile * 1000),
            open_failures=self.open_failures,
            scaling=scaling,
        )
        self.control.tell(lambda machine: machine.send_stats(stats))

    def reset(self, stream_ids: frozenset[int] | None = None) -> None:
        """Cut streams, all of them unless it is said which."""
        for stream_id, stream in list(self.opens.items()):
            if stream_ids is None or stream_id in stream_ids:
                stream.reset(ErrorCode.SHUTDOWN)
