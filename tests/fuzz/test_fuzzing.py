"""Each target under the fuzzer for a moment, with one seed: the same inputs each time, until the code changes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

SECONDS = 1
SEED = 1
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_moment_of_fuzzing_finds_nothing(name: str, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")}
    options = ["--seconds", str(SECONDS), "--seed", str(SEED), "--corpus", str(tmp_path)]
    command = [sys.executable, "-m", "tests.fuzz", name, *options]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-1000:]  # the exception is printed to stdout
    assert "Done" in ran.stderr
