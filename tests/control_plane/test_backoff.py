"""Retries end by the clock, spread out, and honour what the other side asks for."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from agentmesh.control_plane.backoff import Backoff, Retries


class Longest(Random):
    """Draws the top of every range."""

    def uniform(self, a: float, b: float) -> float:
        return b


def test_waits_double_up_to_the_longest() -> None:
    retries = Retries(Backoff(), Longest(), now=0.0)
    assert [retries.next_wait(0.0) for _ in range(6)] == [1, 2, 4, 8, 15, 15]


def test_the_budget_is_elapsed_time() -> None:
    retries = Retries(Backoff(budget=180.0), Longest(), now=1000.0)
    assert retries.next_wait(1179.0) == 1.0
    assert retries.next_wait(1179.0) is None


def test_retry_after_is_waited_before_the_jitter_and_capped() -> None:
    retries = Retries(Backoff(first_wait=1.0, max_retry_after=60.0), Longest(), now=0.0)
    assert retries.next_wait(0.0, retry_after=2.0) == 3.0
    assert retries.next_wait(0.0, retry_after=3600.0) == 62.0


def test_no_budget_means_one_attempt() -> None:
    assert Retries(Backoff(budget=0.0), Longest(), now=0.0).next_wait(0.0) is None


@given(st.integers(), st.lists(st.one_of(st.none(), st.floats(0, 1000)), max_size=50))
def test_never_beyond_the_budget(seed: int, asked: list[float | None]) -> None:
    backoff, now = Backoff(), 0.0
    retries = Retries(backoff, Random(seed), now)
    for retry_after in asked:
        wait = retries.next_wait(now, retry_after)
        if wait is None:
            continue
        assert 0 <= wait <= backoff.max_wait + backoff.max_retry_after
        now += wait
        assert now <= backoff.budget


def test_a_fleet_turned_away_at_once_comes_back_spread_out() -> None:
    waits = [Retries(Backoff(), Random(seed), 0.0).next_wait(0.0, 2.0) for seed in range(1000)]
    slots = [sum(1 for wait in waits if wait is not None and int(wait * 10) == slot) for slot in range(20, 30)]
    assert min(slots) > 60
