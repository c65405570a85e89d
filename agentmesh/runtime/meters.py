"""How much of something each peer, or each source of connections, may have: an allowance for each, for those that asked
last. `now` comes from the caller.
"""

from collections import OrderedDict
from collections.abc import Hashable

from agentmesh.runtime.yamux.ledger import Allowance

MAX_METERED_PEERS = 4096


class Meter:
    """One kind of thing that peers may have of us.

    Args:
        allowance: what each peer may have: so much at once, so much in the long run.
        max_peers: how many are remembered; the one that asked longest ago is forgotten first, and has its burst back.
    """

    def __init__(self, allowance: Allowance, max_peers: int = MAX_METERED_PEERS) -> None:
        self.allowance = allowance
        self._max_peers = max_peers
        self._settled_at: OrderedDict[Hashable, float] = OrderedDict()  # when each has its whole burst again

    def spend(self, peer: Hashable, now: float, amount: float = 1) -> float:
        """Take `amount` from what a peer may have, if it has that much left.

        Args:
            now: seconds that never go back.
        Returns:
            0 when it was taken; else, with nothing taken, the seconds until there will be enough.
        """
        rate = self.allowance.per_second
        settled_at = max(self._settled_at.get(peer, now), now) + amount / rate
        excess = (settled_at - now) * rate - self.allowance.burst
        if excess > 0.5:  # rounding must not make it one less
            return excess / rate
        self._settled_at[peer] = settled_at
        self._settled_at.move_to_end(peer)
        if len(self._settled_at) > self._max_peers:
            self._settled_at.popitem(last=False)
        return 0.0

    def __len__(self) -> int:
        return len(self._settled_at)
