import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.pool.agent.sampling import QueueWait


def test_what_waits_by_how_fast_it_leaves() -> None:
    wait = QueueWait(0.0)
    wait.look(500, 1000, 1.0)
    assert wait.percentile == pytest.approx(0.5)


def test_what_does_not_leave_at_all_waits_ever_longer() -> None:
    wait = QueueWait(0.0)
    for second in range(1, 5):
        wait.look(500, 0, float(second))
    assert wait.percentile == 4.0
    wait.look(500, 0, 4.0)  # no time has passed
    assert wait.percentile == 4.0


def test_an_idle_queue_has_no_wait() -> None:
    wait = QueueWait(0.0)
    assert wait.percentile == 0.0
    for second in range(1, 200):
        wait.look(0, 0, float(second))
    assert wait.percentile == 0.0


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9), st.floats(0.01, 100)), max_size=100))
def test_a_wait_is_a_wait(looks: list[tuple[int, int, float]]) -> None:
    wait, sent, now = QueueWait(0.0), 0, 0.0
    for backlog, moved, seconds in looks:
        sent, now = sent + moved, now + seconds
        wait.look(backlog, sent, now)
        assert 0.0 <= wait.percentile < float("inf")


def test_how_fast_bytes_leave_is_what_left_of_late() -> None:
    wait = QueueWait(0.0)
    assert wait.rate == 0.0
    for second, sent in enumerate([0, 1000, 2000, 2000, 2000, 2000, 2000, 5000], 1):
        wait.look(0, sent, float(second))
    assert wait.rate == pytest.approx(600.0)
