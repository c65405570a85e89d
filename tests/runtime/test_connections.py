"""The connection manager: who is trimmed and in what order, how many a source may hold, and figures that are true."""

from collections import Counter

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.abc import Direction, Link
from agentmesh.runtime.config import ConnectionLimits, SessionConfig
from agentmesh.runtime.connections import ConnectionManager
from agentmesh.runtime.session import MuxSession
from agentmesh.runtime.stream import MuxStream
from agentmesh.runtime.upgrade import Upgraded
from agentmesh.types import Address, PeerId

PEERS = [PeerId.from_ed25519(bytes((number,)) * 32) for number in range(40)]
NOW = 0.0
SMALL = ConnectionLimits(high_watermark=4, low_watermark=2, max_per_source=2, max_handshakes=3)


class NoLink(Link):
    """A path on which nothing is ever said."""

    def __init__(self, peer: PeerId) -> None:
        self.peer = peer

    def write(self, data: bytes) -> bool:
        return True

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self) -> memoryview:
        await trio.sleep_forever()
        raise AssertionError

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def accept_nothing(stream: MuxStream) -> None:
    stream.reset()


def session_with(peer: PeerId, direction: Direction = Direction.INBOUND) -> MuxSession:
    return MuxSession(Upgraded(NoLink(peer), b""), direction, accept_nothing, SessionConfig())


def alive(sessions: list[MuxSession]) -> list[bool]:
    return [session.is_open for session in sessions]


def at(text: str) -> Address:
    return Address.parse(text)


# ── watermarks ──


def test_the_low_watermark_is_below_the_high_one() -> None:
    for low in (4, 5):
        with pytest.raises(ValueError, match="low_watermark"):
            ConnectionLimits(high_watermark=4, low_watermark=low)


@pytest.mark.parametrize(("high", "low"), [(4, 2), (4, 3), (10, 1)])
async def test_above_the_high_watermark_the_oldest_go_down_to_the_low_one(high: int, low: int) -> None:
    manager = ConnectionManager(ConnectionLimits(high_watermark=high, low_watermark=low))
    sessions = [session_with(peer) for peer in PEERS[: high + 1]]
    for session in sessions[:-1]:
        manager.add(session)
    assert all(alive(sessions))
    manager.add(sessions[-1])
    assert alive(sessions) == [False] * (high + 1 - low) + [True] * low
    assert manager.statistics().trimmed == high + 1 - low


async def test_trim_takes_unauthenticated_connections_first() -> None:
    """Those that nobody vouches for go down to the low watermark, the others only as far as they must."""
    manager = ConnectionManager(ConnectionLimits(high_watermark=6, low_watermark=3))
    sessions = [session_with(peer) for peer in PEERS[:7]]
    for session in sessions[:6]:
        manager.add(session)
    manager.protect(PEERS[0], "router")
    manager.protect(PEERS[0], "relay")
    manager.unprotect(PEERS[0], "relay")
    manager.tag(PEERS[1], "reserved", 5)
    manager.tag(PEERS[2], "reserved", 3)
    manager.tag(PEERS[2], "directory", 3)
    manager.tag(PEERS[3], "reserved", 1)
    manager.add(sessions[6])
    # 4 and 5 had no tag, 0 is protected, and 6 has only just come
    assert alive(sessions) == [True, True, True, True, False, False, True]
    more = [session_with(peer) for peer in PEERS[10:12]]
    for number, session in enumerate(more):
        manager.add(session)
        manager.tag(session.peer, "reserved", 10 - number)
    assert alive([*sessions, *more]) == [True, True, True, True, False, False, False, True, True]
    stranger = session_with(PEERS[20])
    manager.add(stranger)
    assert alive([*sessions, *more, stranger]) == [True, True, True, True, False, False, False, True, True, False]
    manager.add(session_with(PEERS[21], Direction.OUTBOUND))
    # that one is ours; 3 was worth least, and no more have to go
    assert alive([*sessions, *more]) == [True, True, True, False, False, False, False, True, True]


async def test_a_protection_ends_with_its_last_reason_and_a_tag_with_its_name() -> None:
    manager = ConnectionManager(SMALL)
    sessions = [session_with(peer) for peer in PEERS[:5]]
    for session in sessions[:4]:
        manager.add(session)
    manager.protect(PEERS[0], "router")
    manager.unprotect(PEERS[0], "router")
    manager.unprotect(PEERS[1], "never given")
    manager.tag(PEERS[1], "reserved", 5)
    manager.untag(PEERS[1], "reserved")
    manager.untag(PEERS[2], "never given")
    manager.tag(PEERS[3], "reserved", 1)
    manager.tag(PEERS[3], "directory", 1)
    manager.untag(PEERS[3], "directory")
    manager.tag(PEERS[30], "not connected", 1)
    manager.add(sessions[4])
    assert alive(sessions) == [False, False, False, True, True]


async def test_a_tag_ends_with_the_last_session_to_its_peer() -> None:
    manager = ConnectionManager(SMALL)
    first, second = session_with(PEERS[0]), session_with(PEERS[0])
    manager.add(first)
    manager.add(second)
    manager.tag(PEERS[0], "reserved", 100)
    assert not manager.remove(first)
    assert manager.remove(second)
    sessions = [session_with(peer) for peer in PEERS[:5]]
    for session in sessions[:4]:
        manager.add(session)
    for peer in PEERS[1:3]:
        manager.tag(peer, "reserved", 1)
    manager.add(sessions[4])
    assert alive(sessions)[0] is False


async def test_if_all_are_protected_none_goes() -> None:
    manager = ConnectionManager(SMALL)
    sessions = [session_with(peer) for peer in PEERS[:6]]
    for session in sessions:
        manager.protect(session.peer, "router")
        manager.add(session)
    assert all(alive(sessions))
    assert len(manager) == 6


async def test_those_that_are_ending_are_not_trimmed_again() -> None:
    manager = ConnectionManager(SMALL)
    sessions = [session_with(peer) for peer in PEERS[:6]]
    for session in sessions[:5]:
        manager.add(session)
    assert manager.statistics().trimmed == 3
    manager.add(sessions[5])
    assert manager.statistics().trimmed == 4
    assert alive(sessions) == [False, False, False, False, True, True]


async def test_the_session_to_use_is_the_newest_that_takes_streams() -> None:
    manager = ConnectionManager(SMALL)
    assert manager.get(PEERS[0]) is None
    first, second = session_with(PEERS[0]), session_with(PEERS[0])
    manager.add(first)
    manager.add(second)
    assert manager.get(PEERS[0]) is second
    second.drain()
    assert manager.get(PEERS[0]) is first
    first.abort("enough")
    assert manager.get(PEERS[0]) is None
    assert list(manager) == [first, second]


async def test_a_session_that_is_retired_is_used_for_nothing_new() -> None:
    manager = ConnectionManager(SMALL)
    first, second = session_with(PEERS[0]), session_with(PEERS[0])
    manager.add(first)
    manager.retire(first)
    assert manager.get(PEERS[0]) is None
    assert first.accepts_streams
    manager.add(second)
    assert manager.get(PEERS[0]) is second
    assert manager.sessions_of(PEERS[0]) == (first, second)
    manager.remove(first)
    first.abort("gone")
    manager.retire(first)  # too late: nothing is kept of it
    assert manager.sessions_of(PEERS[0]) == (second,)


@pytest.mark.parametrize(("high", "low", "source"), [(4000, 3400, 1000), (100, 85, 25), (3, 2, 1), (2, 1, 1)])
def test_what_the_limits_are_where_only_the_high_watermark_is_set(high: int, low: int, source: int) -> None:
    limits = ConnectionLimits(high_watermark=high)
    assert (limits.low_watermark, limits.max_per_source) == (low, source)


# ── sources ──


@pytest.mark.parametrize("max_per_source", [8, 1000])
def test_a_source_opens_connections_no_faster_than_so(max_per_source: int) -> None:
    manager = ConnectionManager(ConnectionLimits(max_per_source=max_per_source))
    source, now = at("/ip4/192.0.2.1/tcp/1"), NOW

    def opens() -> bool:
        if accepted := manager.begin_handshake(source, now):
            manager.end_handshake(source)
            manager.release_source(source)
        return accepted

    assert [opens() for _ in range(2 * max_per_source)] == [True] * 2 * max_per_source  # a crowd that starts together
    assert not opens()
    assert manager.begin_handshake(at("/ip4/192.0.2.2/tcp/1"), now)
    assert manager.begin_handshake(at("/ip4/127.0.0.1/tcp/1"), now)
    now += 40.0 / max_per_source  # 0.2 a second for 8 that it may hold
    assert opens()
    assert not opens()
    assert manager.statistics().refused == {"per_ip_limit": 0, "rate_limit": 2, "handshake_limit": 0}


def test_a_source_holds_so_many_connections() -> None:
    manager = ConnectionManager(SMALL)
    source = at("/ip4/192.0.2.1/tcp/1000")
    for _ in range(SMALL.max_per_source):
        assert manager.begin_handshake(source, NOW)
        manager.end_handshake()
    assert not manager.begin_handshake(at("/ip4/192.0.2.1/tcp/2000"), NOW)
    assert manager.begin_handshake(at("/ip4/192.0.2.2/tcp/1000"), NOW)
    manager.end_handshake()
    assert manager.statistics().refused == {"per_ip_limit": 1, "rate_limit": 0, "handshake_limit": 0}
    manager.release_source(source)
    assert manager.begin_handshake(source, NOW)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/ip6/2001:db8:1:2:3::1/tcp/1", "/ip6/2001:db8:1:ff:4::1/tcp/2"),  # one /56
        ("/ip6/::ffff:192.0.2.1/tcp/1", "/ip4/192.0.2.1/tcp/1"),  # one IPv4 address, as a socket for both sees it
    ],
)
def test_one_source_in_two_spellings(one: str, other: str) -> None:
    manager = ConnectionManager(ConnectionLimits(max_per_source=1))
    assert manager.begin_handshake(at(one), NOW)
    assert not manager.begin_handshake(at(other), NOW)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/ip6/2001:db8:1:200::1/tcp/1", "/ip6/2001:db8:1:300::1/tcp/1"),  # two /56
        ("/ip6/::ffff:192.0.2.1/tcp/1", "/ip6/::ffff:192.0.2.2/tcp/1"),
        ("/ip4/192.0.2.1/tcp/1", "/ip4/192.0.2.2/tcp/1"),
    ],
)
def test_two_sources(one: str, other: str) -> None:
    manager = ConnectionManager(ConnectionLimits(max_per_source=1))
    assert manager.begin_handshake(at(one), NOW)
    assert manager.begin_handshake(at(other), NOW)


@pytest.mark.parametrize(
    "source",
    [
        None,
        at("/ip4/127.0.0.1/tcp/1"),
        at("/ip4/127.9.9.9/tcp/1"),
        at("/ip6/::1/tcp/1"),
        at("/ip6/::ffff:127.0.0.1/tcp/1"),
        at("/memory/1"),
        at("/ip4/192.0.2.1/tcp/1/p2p-circuit"),
    ],
    ids=str,
)
def test_whom_no_source_is_counted_for(source: Address | None) -> None:
    manager = ConnectionManager(ConnectionLimits(max_per_source=1))
    for _ in range(5):
        assert manager.begin_handshake(source, NOW)
        manager.end_handshake()
    for _ in range(5):
        manager.release_source(source)


@pytest.mark.parametrize("limit", [1, 3])
def test_so_many_handshakes_at_once(limit: int) -> None:
    manager = ConnectionManager(ConnectionLimits(max_handshakes=limit))
    for _ in range(limit):
        assert manager.begin_handshake(None, NOW)
    assert not manager.begin_handshake(None, NOW)
    assert manager.statistics().handshakes == limit
    assert manager.statistics().refused == {"per_ip_limit": 0, "rate_limit": 0, "handshake_limit": 1}
    manager.end_handshake()
    assert manager.begin_handshake(None, NOW)


def test_one_source_cannot_take_all_the_handshakes() -> None:
    manager = ConnectionManager(ConnectionLimits(max_handshakes_per_source=1))
    one, other = at("/ip4/192.0.2.1/tcp/1"), at("/ip4/192.0.2.2/tcp/1")
    assert manager.begin_handshake(one, NOW)
    assert not manager.begin_handshake(one, NOW)
    assert manager.begin_handshake(other, NOW)
    manager.end_handshake(one)
    assert manager.begin_handshake(one, NOW)


def test_a_refused_connection_leaves_no_trace() -> None:
    manager = ConnectionManager(ConnectionLimits(max_handshakes=1, max_per_source=1))
    assert manager.begin_handshake(at("/ip4/192.0.2.1/tcp/1"), NOW)
    assert not manager.begin_handshake(at("/ip4/192.0.2.2/tcp/1"), NOW)
    manager.end_handshake()
    assert manager.begin_handshake(at("/ip4/192.0.2.2/tcp/1"), NOW)


# ── figures ──


@attrs.frozen
class Step:
    """One thing that happens to a manager; `number` picks the peer, source or session that it happens to."""

    what: str
    number: int


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["add", "dial", "remove", "begin", "end", "release", "tag", "untag", "protect", "unprotect"]),
        st.integers(0, 11),
    ),
    max_size=60,
)


@given(STEPS)
async def test_every_figure_is_the_size_of_the_set_that_it_tells_of(steps: list[Step]) -> None:
    limits = ConnectionLimits(high_watermark=5, low_watermark=3, max_per_source=3, max_handshakes=4)
    manager = ConnectionManager(limits)
    open_sessions: list[MuxSession] = []
    sources: Counter[int] = Counter()
    handshakes = refused = 0
    protected: set[PeerId] = set()
    for number, step in enumerate(steps):
        peer, source = PEERS[step.number], step.number % 3
        address = at(f"/ip4/192.0.2.{source}/tcp/1")
        match step.what:
            case "add" | "dial":
                session = session_with(peer, Direction.INBOUND if step.what == "add" else Direction.OUTBOUND)
                open_sessions.append(session)
                manager.add(session)
                assert session.is_open
            case "remove" if open_sessions:
                session = open_sessions.pop(step.number % len(open_sessions))
                was_last = all(other.peer != session.peer for other in open_sessions)
                assert manager.remove(session) == was_last
            case "begin":
                room = handshakes < limits.max_handshakes and sources[source] < limits.max_per_source
                assert manager.begin_handshake(address, 1000.0 * number) == room  # slowly
                handshakes, refused = handshakes + room, refused + (not room)
                sources[source] += room
            case "end" if handshakes:
                manager.end_handshake()
                handshakes -= 1
            case "release" if sources[source]:
                manager.release_source(address)
                sources[source] -= 1
            case "tag":
                manager.tag(peer, "worth", step.number)
            case "untag":
                manager.untag(peer, "worth")
            case "protect":
                manager.protect(peer, "needed")
                protected.add(peer)
            case "unprotect":
                manager.unprotect(peer, "needed")
                protected.discard(peer)
            case _:
                continue
        figures = manager.statistics()
        assert figures.inbound == sum(session.direction is Direction.INBOUND for session in open_sessions)
        assert figures.outbound == sum(session.direction is Direction.OUTBOUND for session in open_sessions)
        assert figures.peers == len(manager.peers) == len({session.peer for session in open_sessions})
        assert len(manager) == len(list(manager)) == len(open_sessions)
        assert figures.handshakes == handshakes
        assert sum(figures.refused.values()) == refused
        takes_streams = sum(session.accepts_streams for session in open_sessions)
        assert takes_streams <= limits.high_watermark or len(protected) >= takes_streams - limits.high_watermark
