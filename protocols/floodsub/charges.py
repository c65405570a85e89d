"""What peers of one role have had of what they may have."""

from agentmesh.errors import LimitExceededError, RejectedError, RemoteProtocolError
from agentmesh.protocols.floodsub.events import CutReason
from agentmesh.protocols.floodsub.limits import PeerLimits
from agentmesh.runtime.meters import Meter
from agentmesh.runtime.yamux import Allowance
from agentmesh.types import PeerId


def reason_of(exc: RemoteProtocolError | RejectedError) -> CutReason:
    """What a link is cut for."""
    if isinstance(exc, RejectedError):
        return CutReason.TOPICS
    limit = exc.limit if isinstance(exc, LimitExceededError) else ""
    return next((reason for reason in CutReason if reason == limit), CutReason.BROKEN)


class Charge:
    """One account of every peer. It outlives the peer's link, so that cutting a link and making one pays no debt."""

    def __init__(self, name: CutReason, allowance: Allowance) -> None:
        self._name = name
        self._meter = Meter(allowance)

    def __call__(self, peer: PeerId, now: float, amount: int = 1) -> None:
        """Raises LimitExceededError when the peer has not that much left."""
        if self._meter.spend(peer, now, amount):
            raise LimitExceededError(f"{self._name}: more than {self._meter.allowance}", limit=self._name)


class Charges:
    """All accounts of the peers of one role."""

    def __init__(self, limits: PeerLimits) -> None:
        self.messages = Charge(CutReason.MESSAGES, limits.max_messages)
        self.bytes = Charge(CutReason.BYTES, limits.max_bytes)
        self.changes = Charge(CutReason.CHANGES, limits.max_changes)
        self.rejected = Charge(CutReason.REJECTED, limits.max_rejected)
