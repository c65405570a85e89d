"""Members that transfer bytes while everything goes wrong: short soaks; `make soak` has the long ones.

Each is a process of its own, so that what it counts is its own, and coverage does not slow it down.
"""

import os
import re
import subprocess
import sys

import pytest

PATIENCE = 300.0  # seconds, on a machine that is busy; far more than it takes
PYTHON = (sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-m", "tests.soak")


def soak(*arguments: object) -> str:
    """Run one, and see that nothing was lost, hangs or is left over. What it says."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    command = [*PYTHON, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, ""), f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.timeout(PATIENCE)
def test_two_hundred_members_on_the_simulated_network() -> None:
    said = soak("--seed", 1, "--members", 200, "--seconds", 20, "--faults", 2, "--transfers", 1.5)
    assert re.search(r"^transfers +100 of 100 through", said, re.MULTILINE)


@pytest.mark.timeout(PATIENCE)
def test_members_on_real_sockets() -> None:
    rates = ("--faults", 4, "--transfers", 8)
    said = soak("--real", "--seed", 1, "--members", 40, "--seconds", 12, "--ping-interval", 4, *rates)
    assert re.search(r"^transfers +64 of 64 through", said, re.MULTILINE)


@pytest.mark.timeout(PATIENCE)
def test_the_same_seed_does_the_same() -> None:
    first, again, other = (
        re.findall(r"fingerprint.*", soak("--seed", seed, "--members", 6, "--seconds", 15, "--faults", 20))
        for seed in (3, 3, 4)
    )
    assert len(first) == 1
    assert again == first
    assert other != first
