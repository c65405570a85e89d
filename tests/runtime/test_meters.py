import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.runtime.meters import MAX_METERED_PEERS, Meter
from agentmesh.runtime.yamux import Allowance
from agentmesh.types import PeerId

PEERS = [PeerId.from_ed25519(n.to_bytes(32, "big")) for n in range(MAX_METERED_PEERS + 2)]


def test_so_much_at_once_and_so_much_a_second() -> None:
    meter = Meter(Allowance(burst=3, per_second=2))
    assert [meter.spend(PEERS[0], 100.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert meter.spend(PEERS[0], 100.0, 3) == pytest.approx(1.5)
    assert [meter.spend(PEERS[0], 100.5), meter.spend(PEERS[0], 100.5)] == [0.0, 0.5]
    assert meter.spend(PEERS[0], 200.0, 3) == 0.0, "what was not used is saved up to the burst"
    assert meter.spend(PEERS[1], 100.0) == 0.0, "one peer does not slow another"


def test_what_is_more_than_the_burst_is_never_had() -> None:
    meter = Meter(Allowance(burst=3, per_second=1))
    assert meter.spend(PEERS[0], 0.0, 10) == 7.0
    assert meter.spend(PEERS[0], 1e6, 10) == 7.0


def test_no_more_peers_are_remembered_than_the_bound() -> None:
    meter = Meter(Allowance(burst=1, per_second=1))
    for peer in PEERS[:MAX_METERED_PEERS]:
        assert meter.spend(peer, 0.0) == 0.0
    assert meter.spend(PEERS[0], 0.0) > 0, "still remembered"
    for peer in PEERS[MAX_METERED_PEERS:]:
        assert meter.spend(peer, 0.0) == 0.0
    assert len(meter) == MAX_METERED_PEERS
    assert meter.spend(PEERS[0], 0.0) == 0.0, "the one that had something longest ago is forgotten"


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 5)), max_size=60))
def test_never_more_than_the_burst_and_the_rate(spendings: list[tuple[float, int]]) -> None:
    meter, now, had = Meter(Allowance(burst=10, per_second=5)), 0.0, 0
    for pause, amount in spendings:
        now += pause
        wait = meter.spend(PEERS[0], now, amount)
        had += 0 if wait else amount
        assert had <= 10 + 5 * now + 0.5
        assert not wait or amount > 10 or meter.spend(PEERS[0], now + wait, 0) == 0.0
