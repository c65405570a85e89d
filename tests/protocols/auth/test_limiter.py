from hypothesis import given
from hypothesis import strategies as st

from agentmesh.protocols.auth import PeerLimiter
from agentmesh.types import PeerId

PEERS = [PeerId.from_ed25519(n.to_bytes(32, "big")) for n in range(5000)]


def test_ten_at_once_then_five_a_second() -> None:
    limiter = PeerLimiter()
    assert [limiter.allow(PEERS[0], 100.0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert [limiter.allow(PEERS[0], 101.0) for _ in range(6)] == [True] * 5 + [False]
    assert [limiter.allow(PEERS[0], 101.2), limiter.allow(PEERS[0], 101.2)] == [True, False]


def test_what_was_not_used_is_saved_up_to_the_burst() -> None:
    limiter = PeerLimiter()
    limiter.allow(PEERS[0], 0.0)
    assert sum(limiter.allow(PEERS[0], 1e6) for _ in range(20)) == 10


def test_one_peer_does_not_slow_another() -> None:
    limiter = PeerLimiter()
    assert not all(limiter.allow(PEERS[0], 0.0) for _ in range(11))
    assert limiter.allow(PEERS[1], 0.0)


def test_no_more_than_4096_peers_are_remembered_and_the_oldest_is_forgotten() -> None:
    limiter = PeerLimiter()
    while limiter.allow(PEERS[0], 0.0):
        pass
    for peer in PEERS[1:4096]:
        assert limiter.allow(peer, 0.0)
    assert not limiter.allow(PEERS[0], 0.0), "still remembered, and now the youngest"
    assert limiter.allow(PEERS[4096], 0.0)
    assert len(limiter) == 4096
    assert not limiter.allow(PEERS[0], 0.0)
    for peer in PEERS[4097:5000]:
        limiter.allow(peer, 0.0)
    assert len(limiter) == 4096


@given(st.lists(st.floats(0, 2), max_size=60))
def test_never_more_than_the_burst_and_the_rate(pauses: list[float]) -> None:
    limiter, now, allowed = PeerLimiter(), 0.0, 0
    for pause in pauses:
        now += pause
        allowed += limiter.allow(PEERS[0], now)
        assert allowed <= 10 + 5 * now + 1e-6
