"""Several routers, a registry and processes that fail at random. `python -m tests.pool.chaos` goes on for a day."""

from agentmesh.testing.clock import run
from tests.pool.chaos import go_on
from tests.pool.machines import names_by_seed

MINUTES, SEED = 12.0, 1


def test_whatever_fails_streams_are_opened_and_nothing_is_left() -> None:
    with names_by_seed(SEED):
        counts = run(go_on, MINUTES, SEED, seed=SEED)
    assert counts["opened"] > 50
    assert counts["used"] > 50
    assert counts["refused though online"] <= 0.01 * counts["opened"]
