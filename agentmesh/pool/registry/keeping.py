"""One connection whose lease a router keeps: what it may be taken for at any moment. No clock, no I/O."""

import enum

import attrs

from agentmesh.pool.registry.values import Fence, NewConnection, Stats
from agentmesh.protocols.pool import ConnEpoch


class State(enum.Enum):
    """What is known of a lease."""

    LISTED = "listed"  # it was held when the registry last answered
    LAPSED = "lapsed"  # it has run out; the connection lives, and is to be registered again
    LOST = "lost"  # a later life of the connection has begun elsewhere
    RELEASED = "released"  # we want it no more


class Input(enum.Enum):
    """What happens to a lease."""

    RENEWED = "renewed"
    REGISTERED = "registered"
    LAPSED = "lapsed"
    SUPERSEDED = "superseded"
    RELEASE = "release"


# An answer may be late: what is lost or released stays so.
ROWS: dict[State, tuple[State, ...]] = {
    #               RENEWED         REGISTERED      LAPSED          SUPERSEDED      RELEASE
    State.LISTED: (State.LISTED, State.LISTED, State.LAPSED, State.LOST, State.RELEASED),
    State.LAPSED: (State.LAPSED, State.LISTED, State.LAPSED, State.LOST, State.RELEASED),
    State.LOST: (State.LOST, State.LOST, State.LOST, State.LOST, State.RELEASED),
    State.RELEASED: (State.RELEASED, State.RELEASED, State.RELEASED, State.RELEASED, State.RELEASED),
}
TRANSITIONS = {(state, got): to for state, row in ROWS.items() for got, to in zip(Input, row, strict=True)}


@attrs.define(eq=False)
class Kept:
    """Made by `Keeper.register`. Instants are seconds on the keeper's clock.

    Attributes:
        fence: of its latest life; another after it lapsed and was registered again.
        trusted_until: when the registry may have ended it, if it has not answered since: from then on nobody may rely
            on the connection being listed, and others may have it.
        renew_at: when it is due.
        stats: how busy it is, to be told.
        told: what was told last, and when; None: nothing.
    """

    new: NewConnection
    fence: Fence
    trusted_until: float
    renew_at: float
    state: State = State.LISTED
    stats: Stats = Stats()
    told: Stats | None = None
    told_at: float = 0.0

    @property
    def epoch(self) -> ConnEpoch:
        return self.fence.epoch

    @property
    def is_live(self) -> bool:
        """Whether it is worth keeping."""
        return self.state in (State.LISTED, State.LAPSED)

    def accepts(self, epoch: ConnEpoch, now: float) -> bool:
        """Whether a stream that another router sends for this epoch may be opened."""
        return self.state is State.LISTED and epoch == self.fence.epoch and now < self.trusted_until

    def is_to_be_told(self, now: float, at_least_every: float) -> bool:
        """Whether the registry does not know how busy it is, or not as of late."""
        return self.state is State.LISTED and (self.stats != self.told or now - self.told_at >= at_least_every)

    def step(self, got: Input) -> bool:
        """Take an answer in. Whether it changed anything."""
        before, self.state = self.state, TRANSITIONS[self.state, got]
        return self.state is not before

    def hold(self, fence: Fence, trusted_until: float, renew_at: float) -> None:
        """It is held under this fence, as was just answered."""
        self.fence, self.trusted_until, self.renew_at = fence, trusted_until, renew_at
