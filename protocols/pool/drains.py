"""How far each side is with leaving."""

import enum
import math

from agentmesh.protocols.pool.values import Phase


class Leaving(enum.Enum):
    STAYING = "staying"
    ANNOUNCED = "announced"
    SETTLED = "settled"


# None: it was said before.
ROWS: dict[Leaving, tuple[Leaving | None, ...]] = {
    #                    ANNOUNCED          SETTLED
    Leaving.STAYING:   (Leaving.ANNOUNCED, Leaving.SETTLED),
    Leaving.ANNOUNCED: (None,              Leaving.SETTLED),
    Leaving.SETTLED:   (None,              None),
}  # fmt: skip
TRANSITIONS = {(was, said): to for was, row in ROWS.items() for said, to in zip(Phase, row, strict=True)}


class Departure:
    """One side's leave.

    Attributes:
        expires_at: when its streams are out of time; math.inf while nobody leaves.
    """

    def __init__(self) -> None:
        self.state = Leaving.STAYING
        self.expires_at = math.inf

    @property
    def has_begun(self) -> bool:
        return self.state is not Leaving.STAYING

    @property
    def is_settled(self) -> bool:
        return self.state is Leaving.SETTLED

    def step(self, phase: Phase, expires_at: float) -> bool:
        """Go on. The first deadline counts. False when that was said before."""
        after = TRANSITIONS[self.state, phase]
        if after is None:
            return False
        if not self.has_begun:
            self.expires_at = expires_at
        self.state = after
        return True
