"""The keep-alive: an honest peer is never lost, a silent one within three intervals."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from agentmesh.runtime.keepalive import TRANSITIONS, Input, KeepAlive, State


def test_every_cell_is_decided() -> None:
    assert set(TRANSITIONS) == set(itertools.product(State, Input))


def test_the_first_ping_is_due_at_once_and_its_answer_measures_the_path() -> None:
    beat = KeepAlive(100.0, 15.0)
    assert beat.handle_timeout(100.0) == 1
    beat.pong(1, 100.25)
    assert beat.rtt == 0.25
    assert beat.deadline == 115.0


def test_early_timeouts_and_wrong_answers_are_harmless() -> None:
    beat = KeepAlive(0.0, 15.0)
    beat.handle_timeout(0.0)
    beat.pong(77, 1.0)
    assert beat.rtt is None
    assert beat.handle_timeout(1.0) is None
    assert beat.state is State.WAITING


@given(st.floats(0.1, 100), st.floats(0, 1))
def test_a_peer_that_falls_silent_is_lost_within_three_intervals(interval: float, answered: float) -> None:
    beat = KeepAlive(0.0, interval)
    assert beat.handle_timeout(0.0) == 1
    now = silent_since = answered * interval
    beat.pong(1, silent_since)
    while beat.state is not State.LOST:
        now = beat.deadline
        beat.handle_timeout(now)
    assert now - silent_since <= 3 * interval * (1 + 1e-9)


@given(st.lists(st.floats(0.01, 29.9), min_size=1, max_size=30))
def test_a_peer_that_says_anything_in_time_lives(silences: list[float]) -> None:
    beat, now = KeepAlive(0.0, 15.0), 0.0
    beat.handle_timeout(now)
    for silence in silences:
        now += silence
        beat.handle_timeout(now)
        assert beat.state is not State.LOST
        beat.heard(now)


def test_lost_is_final() -> None:
    beat = KeepAlive(0.0, 1.0)
    beat.handle_timeout(0.0)
    beat.handle_timeout(2.0)
    assert beat.state is State.LOST
    beat.heard(2.1)
    beat.pong(1, 2.1)
    assert beat.state is State.LOST
    assert beat.handle_timeout(1e9) is None
