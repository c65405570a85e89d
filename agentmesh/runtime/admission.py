"""Who is admitted, and until when: the gate that credentials open."""

import heapq
import math
from collections.abc import Callable

import attrs
import trio

from agentmesh.abc import Admission
from agentmesh.errors import ErrorCode, RejectedError
from agentmesh.types import PeerId

MAX_ADMITTED_PEERS = 65536


@attrs.frozen
class Admitted:
    """One peer's admission. `expires_at` is wall-clock seconds."""

    level: Admission
    expires_at: float


def nobody(peer: PeerId) -> bool:
    """A bar for nobody."""
    return False


class AdmissionBook:
    """The peers that a host admits. An admission ends at its credential's expiry, sessions open or not.

    Args:
        wall_clock: seconds since 1970; credentials expire by it.
        max_peers: how many may be admitted at once.
        is_barred: who is not even to have a session. `revoke` puts out whoever has one when he is barred.
    """

    def __init__(
        self,
        wall_clock: Callable[[], float],
        max_peers: int = MAX_ADMITTED_PEERS,
        is_barred: Callable[[PeerId], bool] = nobody,
    ) -> None:
        self.is_barred = is_barred
        self._wall_clock = wall_clock
        self._max_peers = max_peers
        self._admitted: dict[PeerId, Admitted] = {}
        self._expiries: list[tuple[float, PeerId]] = []
        self._on_lapse: list[Callable[[PeerId], None]] = []
        self._changed = trio.Event()

    def admit(self, peer: PeerId, level: Admission, expires_at: float) -> None:
        """Admit a peer, or renew its admission.

        Raises:
            RejectedError: the peer is barred, or max_peers are admitted already.
        """
        if self.is_barred(peer):
            raise RejectedError(f"{peer} is barred", ErrorCode.GATED)
        if peer not in self._admitted and len(self._admitted) >= self._max_peers:
            raise RejectedError("max_peers are admitted")
        self._admitted[peer] = Admitted(level, expires_at)
        heapq.heappush(self._expiries, (expires_at, peer))
        self._sweep()
        self._changed.set()

    def revoke(self, peer: PeerId) -> None:
        """End a peer's admission now; those who asked by `on_lapse` are told."""
        if self._admitted.pop(peer, None) is not None:
            self._sweep()
            for callback in self._on_lapse:
                callback(peer)

    def level(self, peer: PeerId) -> Admission:
        """What the peer may open at this moment."""
        admitted = self._admitted.get(peer)
        return admitted.level if admitted and admitted.expires_at > self._wall_clock() else Admission.ANYONE

    def expires_at(self, peer: PeerId) -> float | None:
        """Wall-clock seconds at which the peer's admission ends, or None when it has none."""
        admitted = self._admitted.get(peer)
        return admitted.expires_at if admitted else None

    def on_lapse(self, callback: Callable[[PeerId], None]) -> None:
        """Have `callback(peer)` called, synchronously, whenever an admission ends. It must not raise."""
        self._on_lapse.append(callback)

    @property
    def pending_expiries(self) -> int:
        """How many instants the timer still has before it; renewals add some, so it may exceed `len`, by a bound."""
        return len(self._expiries)

    def __len__(self) -> int:
        return len(self._admitted)

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._admitted

    async def run(self) -> None:
        """End admissions as their time comes, until cancelled."""
        while True:
            self._changed = trio.Event()
            self.handle_timeout()
            wait = self._expiries[0][0] - self._wall_clock() if self._expiries else math.inf
            with trio.move_on_after(max(wait, 0)):
                await self._changed.wait()

    def handle_timeout(self) -> None:
        """End the admissions whose time has come."""
        now = self._wall_clock()
        while self._expiries and self._expiries[0][0] <= now:
            _, peer = heapq.heappop(self._expiries)
            admitted = self._admitted.get(peer)
            if admitted and admitted.expires_at <= now:
                self.revoke(peer)

    def _sweep(self) -> None:
        """Drop the expiries that renewals and departures left behind, when they are many or nobody is left."""
        if len(self._expiries) > 2 * len(self._admitted) + 64 or not self._admitted:
            self._expiries = [(admitted.expires_at, one) for one, admitted in self._admitted.items()]
            heapq.heapify(self._expiries)
