"""Which router comes next."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from agentmesh.agent.ways import choose
from agentmesh.control_plane.routers import RouterRecord
from agentmesh.types import PeerId

ROUTERS = [RouterRecord(PeerId.from_ed25519(bytes([number]) * 32), ()) for number in range(4)]
A, B, C, _ = (router.peer for router in ROUTERS)


def test_without_routers_there_is_none() -> None:
    assert choose([], {}, set(), Random(1)) is None


def test_the_one_with_the_fewest_connections_comes_first() -> None:
    assert choose(ROUTERS[:3], {A: 2, B: 1, C: 3}, set(), Random(1)) == ROUTERS[1]


def test_one_that_failed_comes_last_and_is_better_than_none() -> None:
    assert choose(ROUTERS[:2], {B: 5}, {A}, Random(1)) == ROUTERS[1]
    assert choose(ROUTERS[:1], {}, {A}, Random(1)) == ROUTERS[0]


def test_equals_share_by_chance() -> None:
    rng = Random(1)
    chosen = [choose(ROUTERS, {}, set(), rng) for _ in range(400)]
    assert all(router in chosen for router in ROUTERS)


@given(st.integers(1, 4), st.integers(0, 40), st.integers())
def test_chosen_one_after_another_they_are_level(routers: int, connections: int, seed: int) -> None:
    held, rng = Counter[PeerId](), Random(seed)
    for _ in range(connections):
        router = choose(ROUTERS[:routers], held, set(), rng)
        assert router is not None
        held[router.peer] += 1
    counts = [held[router.peer] for router in ROUTERS[:routers]]
    assert max(counts) - min(counts) <= 1
