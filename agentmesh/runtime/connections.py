"""The connection manager: which sessions are open, which are worth keeping, and how many one source may hold.

Everything here is synchronous: decide and change in one step.
"""

import ipaddress
from collections import Counter
from collections.abc import Iterator

import attrs

from agentmesh.abc import Direction
from agentmesh.runtime.config import ConnectionLimits
from agentmesh.runtime.figures import ABUSES, abuse_of
from agentmesh.runtime.meters import Meter
from agentmesh.runtime.session import MuxSession
from agentmesh.runtime.yamux import HostMemory
from agentmesh.types import Address, PeerId

IPV6_SOURCE_PREFIX = 56  # what one subscriber is usually given
REFUSALS: tuple[str, ...] = ("per_ip_limit", "rate_limit", "handshake_limit")


@attrs.frozen
class ConnectionStatistics:
    """A snapshot. `refused` counts connections by reason (all of REFUSALS, from 0), `abused` sessions that ended for
    what their peers did (all of ABUSES, from 0).
    """

    inbound: int
    outbound: int
    peers: int
    handshakes: int
    refused: dict[str, int]
    trimmed: int
    abused: dict[str, int]
    held_bytes: int  # by the streams of all sessions: received and not read, queued and not sent


class ConnectionManager:
    """The sessions of a host.

    Args:
        limits: the watermarks and caps.

    Attributes:
        memory: what the streams of all sessions hold.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.memory = HostMemory(limits.max_host_window_bytes, limits.max_held_bytes, self._relieve)
        self._limits = limits
        self._sessions: dict[PeerId, list[MuxSession]] = {}
        self._tags: dict[PeerId, dict[str, int]] = {}
        self._protected: dict[PeerId, set[str]] = {}
        self._sources: Counter[str] = Counter()
        self._handshakes = 0
        self._shaking: Counter[str] = Counter()  # the sources of handshakes under way
        self._arrivals = Meter(limits.arrivals)
        self._retired: set[MuxSession] = set()
        self._refused = dict.fromkeys(REFUSALS, 0)
        self._trimmed = 0
        self._abused = dict.fromkeys(ABUSES, 0)

    def __iter__(self) -> Iterator[MuxSession]:
        return iter([session for sessions in self._sessions.values() for session in sessions])

    def __len__(self) -> int:
        return sum(map(len, self._sessions.values()))

    @property
    def peers(self) -> tuple[PeerId, ...]:
        """The peers that a session is open to."""
        return tuple(self._sessions)

    def get(self, peer: PeerId) -> MuxSession | None:
        """The session to use for `peer`: the newest that accepts streams and is not retired."""
        usable = (s for s in reversed(self._sessions.get(peer, [])) if s.accepts_streams and s not in self._retired)
        return next(usable, None)

    def retire(self, session: MuxSession) -> None:
        """Open nothing more on a session whose path will not last; what is open on it, and what the peer opens, goes
        on.
        """
        if session.is_open:
            self._retired.add(session)

    def sessions_of(self, peer: PeerId) -> tuple[MuxSession, ...]:
        """Every session to a peer, the oldest first."""
        return tuple(self._sessions.get(peer, ()))

    def statistics(self) -> ConnectionStatistics:
        directions = Counter(session.direction for session in self)
        return ConnectionStatistics(
            inbound=directions[Direction.INBOUND],
            outbound=directions[Direction.OUTBOUND],
            peers=len(self._sessions),
            handshakes=self._handshakes,
            refused=dict(self._refused),
            trimmed=self._trimmed,
            abused=dict(self._abused),
            held_bytes=self.memory.held,
        )

    # ── accepting ──

    def begin_handshake(self, source: Address | None, now: float) -> bool:
        """Take a place for an inbound connection, or False when its source or the host has no more to give.

        Args:
            now: seconds that never go back.
        """
        key = _source_of(source)
        full = key is not None and self._shaking[key] >= self._limits.max_handshakes_per_source
        if full or self._handshakes >= self._limits.max_handshakes:
            self._refused["handshake_limit"] += 1
            return False
        if key is not None and self._sources[key] >= self._limits.max_per_source:
            self._refused["per_ip_limit"] += 1
            return False
        if key is not None and self._arrivals.spend(key, now):
            self._refused["rate_limit"] += 1
            return False
        self._handshakes += 1
        if key is not None:
            self._sources[key] += 1
            self._shaking[key] += 1
        return True

    def end_handshake(self, source: Address | None = None) -> None:
        """The handshake is over, well or badly; the connection still counts for its source."""
        self._handshakes -= 1
        if (key := _source_of(source)) is not None:
            _count_down(self._shaking, key)

    def release_source(self, source: Address | None) -> None:
        """The inbound connection is closed."""
        if (key := _source_of(source)) is not None:
            _count_down(self._sources, key)

    # ── sessions ──

    def add(self, session: MuxSession) -> None:
        """Count a session in, and trim when there are too many."""
        self._sessions.setdefault(session.peer, []).append(session)
        if len(self) > self._limits.high_watermark:
            self._trim(newcomer=session)

    def remove(self, session: MuxSession) -> bool:
        """Count a session out, and why it ended. Returns whether it was the last one to its peer."""
        if session.failure is not None:
            self._abused[abuse_of(session.failure)] += 1
        sessions = self._sessions[session.peer]
        sessions.remove(session)
        self._retired.discard(session)
        if sessions:
            return False
        del self._sessions[session.peer]
        self._tags.pop(session.peer, None)
        return True

    def tag(self, peer: PeerId, name: str, value: int) -> None:
        """Say what a connected peer is worth; trims take the lowest sum of tags first. Does nothing for other peers."""
        if peer in self._sessions:
            self._tags.setdefault(peer, {})[name] = value

    def untag(self, peer: PeerId, name: str) -> None:
        tags = self._tags.get(peer, {})
        tags.pop(name, None)
        if not tags:
            self._tags.pop(peer, None)

    def protect(self, peer: PeerId, name: str) -> None:
        """Never trim this peer, for this reason."""
        self._protected.setdefault(peer, set()).add(name)

    def unprotect(self, peer: PeerId, name: str) -> None:
        reasons = self._protected.get(peer, set())
        reasons.discard(name)
        if not reasons:
            self._protected.pop(peer, None)

    def _trim(self, newcomer: MuxSession) -> None:
        """Close sessions without a tag down to the low watermark, then those with one down to the high one, the lowest
        sum of tags first; the protected never.

        What has a tag is worth something, and its end a surprise: a host that wants fewer of those tells them in time.
        The newcomer goes after other strangers and before those with a tag; never if we dialled it ourselves.
        """
        alive = [session for session in self if session.accepts_streams]
        worth = {peer: sum(tags.values()) for peer, tags in self._tags.items()}
        dialled = newcomer.direction is Direction.OUTBOUND
        mine = [s for s in alive if s.peer not in self._protected and not (dialled and s is newcomer)]
        candidates = sorted(mine, key=lambda session: (worth.get(session.peer, 0), session is newcomer))
        strangers = sum(session.peer not in worth and session is not newcomer for session in candidates)
        most = max(min(strangers, len(alive) - self._limits.low_watermark), len(alive) - self._limits.high_watermark)
        for session in candidates[: max(0, most)]:
            self._trimmed += 1
            session.abort("trimmed: the host is above its high watermark")

    def _relieve(self) -> None:
        """End the sessions that hold most until all of them together hold no more than they may."""
        while self.memory.is_full and (heaviest := max(self, key=lambda session: session.held_bytes, default=None)):
            if not heaviest.held_bytes:
                return
            heaviest.overdraw()


def _count_down(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]


def _source_of(address: Address | None) -> str | None:
    """What a connection counts against: its IPv4 address or IPv6 prefix. None when there is none, and for loopback."""
    text = address and (address.value("ip4") or address.value("ip6"))
    if not text or (address is not None and "p2p-circuit" in address.names):
        return None
    ip = ipaddress.ip_address(text)
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip
    if ip.is_loopback:
        return None
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(ip), IPV6_SOURCE_PREFIX), strict=False))
    return str(ip)
