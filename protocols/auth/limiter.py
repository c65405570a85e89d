"""How often each peer may try: a token bucket a peer, for the peers that tried last. `now` comes from the caller."""

from collections import OrderedDict

import attrs

from agentmesh.types import PeerId


@attrs.define
class _Bucket:
    tokens: float
    filled_at: float


class PeerLimiter:
    """Token buckets by peer.

    Args:
        rate: tries a second that each peer may keep up.
        burst: tries that it may have saved up.
        max_peers: how many peers are remembered; the one that tried longest ago is forgotten first.

    Forgetting gives a peer its burst back. Being forgotten takes `max_peers` other identities, each with a handshake of
    its own, so it pays nobody.
    """

    def __init__(self, rate: float = 5.0, burst: int = 10, max_peers: int = 4096) -> None:
        self._rate = rate
        self._burst = burst
        self._max_peers = max_peers
        self._buckets: OrderedDict[PeerId, _Bucket] = OrderedDict()

    def allow(self, peer: PeerId, now: float) -> bool:
        """Take one of the peer's tries; False when it has none left. `now`: seconds that never go back."""
        bucket = self._buckets.get(peer)
        if bucket is None:
            bucket = self._remember(peer, now)
        self._buckets.move_to_end(peer)
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.filled_at) * self._rate)
        bucket.filled_at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    def __len__(self) -> int:
        return len(self._buckets)

    def _remember(self, peer: PeerId, now: float) -> _Bucket:
        if len(self._buckets) >= self._max_peers:
            self._buckets.popitem(last=False)
        bucket = self._buckets[peer] = _Bucket(self._burst, now)
        return bucket
