"""What a peer may do that is of no use to anybody: so much at once, so much in the long run.

Every frame is legal by itself, and each costs us a little. Honest peers waste some of them: calls are cancelled, frames
cross a reset on the way. The ledger has an account for each kind of waste, and a peer that overdraws one has no claim
to be an honest one.
"""

import enum
from collections.abc import Mapping

import attrs

from agentmesh.errors import LimitExceededError


class Waste(enum.Enum):
    """Kinds of waste; each is named like the limit in `MuxLimits` that bounds it."""

    __hash__ = object.__hash__

    RESETS = "max_resets"
    REFUSALS = "max_refusals"
    UNNAMED = "max_unnamed"
    LATE_FRAMES = "max_late_frames"
    EMPTY_FRAMES = "max_empty_frames"
    PINGS = "max_pings"
    GO_AWAYS = "max_go_aways"


@attrs.frozen
class Allowance:
    """A token bucket: `burst` at once, and `per_second` more as time goes by."""

    burst: int = attrs.field(validator=attrs.validators.ge(0))
    per_second: float = attrs.field(validator=attrs.validators.gt(0))


class Ledger:
    """The accounts of one peer.

    Args:
        allowances: what it may waste, by kind.
        now: seconds on the driver's clock.

    Attributes:
        now: the latest that the driver said.
    """

    def __init__(self, allowances: Mapping[Waste, Allowance], now: float) -> None:
        self.now = now
        self._allowances = allowances
        self._settled_at = dict.fromkeys(allowances, now)  # when the account will be full again

    def spend(self, waste: Waste) -> None:
        """Count one more. Raises LimitExceededError when the peer has nothing left for it."""
        allowance = self._allowances[waste]
        settled_at = max(self._settled_at[waste], self.now) + 1 / allowance.per_second
        if (settled_at - self.now) * allowance.per_second > allowance.burst + 0.5:  # rounding must not make it one less
            raise LimitExceededError(f"{waste.value}: more than {allowance}", limit=waste.value)
        self._settled_at[waste] = settled_at

    def earn(self, waste: Waste) -> None:
        """We did what gives the peer reason for one more."""
        self._settled_at[waste] -= 1 / self._allowances[waste].per_second
