"""Each target under the fuzzer for a moment: what ten minutes find by hand, every run looks for a little."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

SECONDS = 1
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_moment_of_fuzzing_finds_nothing(name: str, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")}
    command = [sys.executable, "-m", "tests.fuzz", name, "--seconds", str(SECONDS), "--corpus", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "Done" in ran.stderr
