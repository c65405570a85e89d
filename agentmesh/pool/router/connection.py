"""One connection of an agent, as its router has it, and the streams that are on it."""

import enum

import attrs

from agentmesh.errors import LocalProtocolError
from agentmesh.pool.router.claims import Claim, ConnectionKey
from agentmesh.pool.router.health import Health
from agentmesh.pool.router.score import Load
from agentmesh.protocols.pool import ConnEpoch, Stats, serves


class State(enum.Enum):
    OPEN = "open"
    DRAINING = "draining"
    CLOSED = "closed"


class Input(enum.Enum):
    DRAIN = "drain"
    CLOSE = "close"


# None: it is gone already.
ROWS: dict[State, tuple[State | None, ...]] = {
    State.OPEN: (State.DRAINING, State.CLOSED),
    State.DRAINING: (State.DRAINING, State.CLOSED),
    State.CLOSED: (None, None),
}
TRANSITIONS = {(was, got): to for was, row in ROWS.items() for got, to in zip(Input, row, strict=True)}


class Connection:
    """A registered connection. Only `PoolTable` makes and ends one.

    Attributes:
        claim: who it is.
        epoch: under which it is registered: the one number that counts.
        handle: the session, for whoever opens streams on it.
        leases: the streams open or being opened on it.
        scaling: what its agent last said of the number of its connections, in `stats`.
    """

    def __init__(self, claim: Claim, epoch: ConnEpoch, handle: object, now: float) -> None:
        self.claim = claim
        self.epoch = epoch
        self.handle = handle
        self.registered_at = self.heard_at = now
        self.rtt: float | None = None
        self.stats = Stats()
        self.queued_bytes = self.queue_limit_bytes = 0
        self.health = Health()
        self.leases: set[Lease] = set()
        self._state = State.OPEN

    @property
    def key(self) -> ConnectionKey:
        return ConnectionKey(self.claim.agent_id, self.claim.connection_id, self.epoch)

    @property
    def connection_id(self) -> str:
        return self.claim.connection_id

    @property
    def state(self) -> State:
        return self._state

    @property
    def active_streams(self) -> int:
        """Those being opened included."""
        return len(self.leases)

    @property
    def is_drained(self) -> bool:
        """Whether it gets no more streams, and has none."""
        return self._state is State.DRAINING and not self.leases

    def serves(self, protocol: str) -> bool:
        return serves(self.claim.capabilities, protocol)

    def heard(self, now: float, rtt: float | None = None) -> None:
        """Something came from it. What comes of one that is gone says nothing.

        Args:
            rtt: smoothed, in seconds, when it was measured.
        """
        if self._state is not State.CLOSED:
            self.heard_at = max(self.heard_at, now)
            self.rtt = self.rtt if rtt is None else rtt

    def take_stats(self, stats: Stats, now: float) -> None:
        """What its agent says of it."""
        if self._state is not State.CLOSED:
            self.stats = stats
            self.heard(now)

    def drain(self) -> bool:
        """Give it no more streams. False when it is gone."""
        return self.step(Input.DRAIN)

    def step(self, got: Input) -> bool:
        """For the table."""
        after = TRANSITIONS[self._state, got]
        self._state = after or self._state
        return after is not None

    def load(self, now: float) -> Load:
        """What a stream on it costs: of the two ends' queues the longer, in either measure."""
        ours = self.queued_bytes * max(self.stats.queue_limit_bytes, 1) > self.stats.queued_bytes * max(
            self.queue_limit_bytes, 1
        )
        return Load(
            active=len(self.leases),
            queued_bytes=self.queued_bytes if ours else self.stats.queued_bytes,
            queue_limit_bytes=self.queue_limit_bytes if ours else self.stats.queue_limit_bytes,
            queue_wait_us=self.stats.queue_wait_ms * 1000,
            rtt_us=None if self.rtt is None else round(self.rtt * 1e6),
            errors=self.health.rate.thousandths(now),
            age_us=max(round((now - self.registered_at) * 1e6), 0),
        )

    def reserve(self, now: float, trace_id: str) -> "Lease":
        """A place for one more stream. Chosen and taken in one step, or two would be given the same."""
        lease = Lease(self, self.health.begin(now), trace_id)
        self.leases.add(lease)
        return lease

    def __repr__(self) -> str:
        return f"<Connection {self.key} {self._state.value}, {len(self.leases)} streams>"


class LeaseState(enum.Enum):
    RESERVED = "being opened"
    ACTIVE = "open"
    ENDED = "ended"


class LeaseInput(enum.Enum):
    ACCEPT = "accept"
    FAIL = "fail"
    END = "end"


_RESERVED, _ACTIVE, _ENDED = LeaseState
# None: our caller's mistake. A lease that its connection took with it takes anything.
LEASE_ROWS: dict[LeaseState, tuple[LeaseState | None, ...]] = {
    #           ACCEPT   FAIL    END
    _RESERVED: (_ACTIVE, _ENDED, _ENDED),
    _ACTIVE:   (None,    None,   _ENDED),
    _ENDED:    (_ENDED,  _ENDED, _ENDED),
}  # fmt: skip
LEASE_TRANSITIONS = {(was, got): to for was, row in LEASE_ROWS.items() for got, to in zip(LeaseInput, row, strict=True)}


@attrs.define(eq=False)
class Lease:
    """One stream's place on a connection, from the choice to the end. It never moves to another.

    Attributes:
        trial: it decides whether its connection gets streams again.
        trace_id: under which the choice was recorded.
        stream_id: the number of its open; 0 before it has one. With the connection's key it names the stream.
    """

    connection: Connection
    trial: bool = False
    trace_id: str = ""
    stream_id: int = 0
    state: LeaseState = LeaseState.RESERVED

    def accept(self, now: float) -> None:
        """The stream is open."""
        if self._step(LeaseInput.ACCEPT) is LeaseState.RESERVED:
            self.connection.health.record(False, now, self.trial)

    def fail(self, now: float, blames_connection: bool) -> None:
        """It could not be opened. A target that is at fault says that the connection is well."""
        if self._step(LeaseInput.FAIL) is LeaseState.RESERVED:
            self.connection.leases.discard(self)
            self.connection.health.record(blames_connection, now, self.trial)

    def end(self) -> None:
        """The stream is over, or was never tried. Does nothing the second time."""
        if self._step(LeaseInput.END) is LeaseState.RESERVED:
            self.connection.health.give_up(self.trial)
        self.connection.leases.discard(self)

    def _step(self, got: LeaseInput) -> LeaseState:
        was, after = self.state, LEASE_TRANSITIONS[self.state, got]
        if after is None:
            raise LocalProtocolError(f"{got.value} of a stream that is {was.value}")
        self.state = after
        return was
