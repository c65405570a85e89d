"""Who is out of the mesh: as the control plane lists it, and as events tell it between two lists. Pure."""

from collections.abc import Callable, Set

from agentmesh.types import PeerId

MAX_TOLD_BANS = 10_000  # that events have told since the last list; the oldest is forgotten first

OnBan = Callable[[Set[PeerId]], None]


class Bans:
    """The peers that are banned. Instants are wall-clock seconds.

    A list takes the place of the one before, and lifts the bans that are not on it. But it says nothing of what came
    after it was asked for: a ban that an event told since then stays.
    """

    def __init__(self) -> None:
        self._listed: Set[PeerId] = frozenset()
        self._told: dict[PeerId, float] = {}  # when each was told, by our clock or the event's, whichever says later
        self._on_ban: list[OnBan] = []

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._listed or peer in self._told

    def __len__(self) -> int:
        return len(self._listed) + sum(peer not in self._listed for peer in self._told)

    def on_ban(self, callback: OnBan) -> None:
        """Have `callback(peers)` called, synchronously, with those who were not banned and are. It must not raise."""
        self._on_ban.append(callback)

    def tell(self, peer: PeerId, at: float, now: float) -> None:
        """An event says that a peer is banned.

        Args:
            at: since when, by the event.
            now: by our clock.
        """
        is_news = peer not in self
        self._told.pop(peer, None)
        self._told[peer] = max(at, now)
        if len(self._told) > MAX_TOLD_BANS:
            del self._told[next(iter(self._told))]
        if is_news:
            self._notify(frozenset({peer}))

    def reconcile(self, listed: Set[PeerId], asked_at: float) -> None:
        """The control plane's list, whole.

        Args:
            asked_at: when it was asked for, by our clock.
        """
        before = self._listed | self._told.keys()
        self._listed = listed
        self._told = {peer: at for peer, at in self._told.items() if at >= asked_at}
        if news := listed - before:
            self._notify(frozenset(news))

    def _notify(self, peers: Set[PeerId]) -> None:
        for callback in self._on_ban:
            callback(peers)
