import hashlib

from hypothesis import given
from hypothesis import strategies as st

from agentmesh.protocols.directory.keys import service_key
from agentmesh.protocols.directory.placement import closest, distance, new_homes
from agentmesh.testing.strategies import directory_keys, peer_ids
from agentmesh.types import PeerId

routers = st.sets(peer_ids(), max_size=12)
counts = st.integers(0, 5)


@given(directory_keys(), peer_ids(), peer_ids())
def test_the_distance_is_kademlias(key: bytes, one: PeerId, other: PeerId) -> None:
    """XOR of the hashes of both names, as a number."""
    hashes = zip(hashlib.sha256(key).digest(), hashlib.sha256(one.multihash).digest(), strict=True)
    assert distance(key, one) == int.from_bytes(bytes(a ^ b for a, b in hashes))
    assert (distance(key, one) == distance(key, other)) == (one == other)


@given(directory_keys(), routers, counts)
def test_the_closest_are_those_than_which_nobody_left_out_is_closer(key: bytes, all: set[PeerId], count: int) -> None:
    chosen = closest(key, all, count)
    assert len(chosen) == len(set(chosen)) == min(count, len(all))
    assert list(chosen) == sorted(chosen, key=lambda router: distance(key, router))
    assert all >= set(chosen)
    for left_out in all - set(chosen):
        assert not any(distance(key, left_out) < distance(key, router) for router in chosen)


@given(directory_keys(), st.lists(peer_ids(), unique=True, max_size=12), counts)
def test_everybody_comes_to_the_same_answer(key: bytes, routers: list[PeerId], count: int) -> None:
    assert closest(key, routers, count) == closest(key, routers[::-1], count)


@given(directory_keys(), routers, peer_ids(), counts)
def test_a_router_that_joins_takes_the_place_of_one_at_most(
    key: bytes, before: set[PeerId], newcomer: PeerId, count: int
) -> None:
    old, new = closest(key, before, count), closest(key, before | {newcomer}, count)
    assert len(set(old) - set(new)) <= 1
    assert set(new) - set(old) <= {newcomer}


@given(directory_keys(), routers, routers, counts)
def test_the_new_homes_and_the_old_ones_that_stay_are_where_a_record_belongs(
    key: bytes, before: set[PeerId], after: set[PeerId], count: int
) -> None:
    homes = new_homes(key, before, after, count)
    assert not set(homes) & set(closest(key, before, count))
    assert set(closest(key, after, count)) <= set(homes) | set(closest(key, before, count))
    assert set(homes) <= after


def test_the_records_are_spread_over_the_routers() -> None:
    keys = [service_key("mcp", str(n)) for n in range(200)]
    all = [PeerId.from_ed25519(n.to_bytes(32, "big")) for n in range(4)]
    counts = [sum(router in closest(key, all, 2) for key in keys) for router in all]
    assert sum(counts) == 400
    assert min(counts) > 60
