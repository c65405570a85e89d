"""A small fleet, in every test run. A large one: `python -m tests.drill --members 3000`."""

import os
import re
import subprocess
import sys

import pytest

PATIENCE = 300.0  # seconds; far more than it takes


def drill(seed: int, members: int, routers: int, *more: str) -> str:
    """Run one, in a process of its own, and see that nobody was left behind. What it says."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    numbers = {"--seed": seed, "--members": members, "--routers": routers}
    command = [sys.executable, "-m", "tests.drill", *(str(part) for pair in numbers.items() for part in pair), *more]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, ""), f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.timeout(PATIENCE)
def test_a_fleet_survives_what_happens_to_its_routers_and_a_seed_does_the_same() -> None:
    first, again = (drill(1, 8, 3) for _ in range(2))
    assert re.search(r"^[1-9]\d* of \d+ were sent away again$", first, re.MULTILINE)
    fingerprints = [re.search(r"fingerprint \w+", said) for said in (first, again)]
    assert fingerprints[0] is not None
    assert fingerprints[1] is not None
    assert fingerprints[0][0] == fingerprints[1][0]


@pytest.mark.timeout(PATIENCE)
def test_hours_of_churn_leave_nothing_behind() -> None:
    """Of a day: `python -m tests.drill --members 6 --routers 3 --hours 24`."""
    assert "1 hours" in drill(1, 4, 3, "--hours", "1")
