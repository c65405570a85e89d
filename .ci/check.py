"""Every check of the repository, one after another or side by side, with what each took.

    python .ci/check.py             all of them
    python .ci/check.py --lint      those that run no test
    python .ci/check.py ARGS...     pytest alone, with these arguments and no coverage

Exits 1 when any failed. A failed check prints all it said, one that passed a line. The last line is pytest's own.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
COVERAGE_JSON = ROOT / ".coverage.json"

# Slowest first: two run at a time.
LINT: dict[str, tuple[str, ...]] = {
    "mypy": ("mypy",),
    "pyright": ("pyright", "--warnings", "--pythonpath", sys.executable),
    "layers": ("lint-imports", "--no-cache"),
    "generated": ("python", "-m", "agentmesh.wire.generate", "--check"),
    "ruff check": ("ruff", "check", "--quiet", ".", ".ci"),
    "ruff format": ("ruff", "format", "--check", "--quiet", ".", ".ci"),
}
PYTEST = ("python", "-m", "pytest", "--hypothesis-profile=ci")
COVERED = ("--cov", "--cov-report=", f"--cov-report=json:{COVERAGE_JSON}")


def workers() -> tuple[str, ...]:
    """With WORKERS=2 in the environment two processes share the tests, each most of a gigabyte by its end."""
    count = os.environ.get("WORKERS", "")
    return (f"--numprocesses={count}", "--dist=worksteal") if count else ()


# Pure code has no excuse: every line and branch of these is run by the tests.
FULLY_COVERED = (
    "protocols/*/wire.py",
    "protocols/*/machine.py",
    "protocols/directory/lookup.py",
    "protocols/directory/placement.py",
    "protocols/directory/store.py",
    "protocols/floodsub/link.py",
    "protocols/floodsub/seen.py",
    "protocols/floodsub/signing.py",
    "protocols/floodsub/topics.py",
    "protocols/relay/hop.py",
    "protocols/relay/pairing.py",
    "protocols/relay/rendezvous.py",
    "protocols/relay/stop.py",
    "protocols/relay/tickets.py",
)

WELL_COVERED = 90.0  # percent; what is below is listed

# pyright's wheel brings its own copy; without this it asks a registry whether there is a newer one.
ENVIRONMENT = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}


@dataclass(frozen=True)
class Outcome:
    """What one check said.

    Attributes:
        seconds: how long it ran.
        output: all it printed, when it failed or is to be shown.
    """

    name: str
    passed: bool
    seconds: float
    output: str

    def __str__(self) -> str:
        return f"{'ok    ' if self.passed else 'FAILED'} {self.name:<12}{self.seconds:7.1f} s"


def run(name: str, command: Sequence[str]) -> Outcome:
    """Run one check to its end, keeping what it prints."""
    started = time.monotonic()
    done = subprocess.run(
        [BIN / command[0], *command[1:]],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    outcome = Outcome(name, done.returncode == 0, time.monotonic() - started, done.stdout)
    print(outcome, flush=True)
    if not outcome.passed:
        print(outcome.output, flush=True)
    return outcome


def run_lint() -> list[Outcome]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(run, LINT, LINT.values()))


def run_pytest(arguments: Sequence[str]) -> tuple[Outcome, str]:
    """Run pytest with its output shown as it comes; returns its closing line as well."""
    started, closing = time.monotonic(), "0 passed, 1 failed"
    with subprocess.Popen(
        [BIN / PYTEST[0], *PYTEST[1:], *arguments],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if line.startswith("=") and " in " in line:
                closing = line.strip()
    return Outcome("pytest", process.returncode == 0, time.monotonic() - started, ""), closing


def holes(covered: Mapping[str, float]) -> list[str]:
    """What is wrong with the coverage of single files, by their names and percentages."""
    return [
        f"{path}: {percent:.1f} % covered, must be 100 %"
        for path, percent in covered.items()
        if percent < 100 and any(fnmatch(path, pattern) for pattern in FULLY_COVERED)
    ]


def check_coverage() -> Outcome:
    """Look at the report that pytest left, and say where it is thin. (The total is pytest's own check.)"""
    report = json.loads(COVERAGE_JSON.read_text()) if COVERAGE_JSON.exists() else {"files": {}}
    COVERAGE_JSON.unlink(missing_ok=True)
    covered = {path: float(found["summary"]["percent_covered"]) for path, found in report["files"].items()}
    thin = sorted((percent, path) for path, percent in covered.items() if percent < WELL_COVERED)
    print("".join(f"\n{percent:5.1f} % of {path}" for percent, path in thin), flush=True)
    found = holes(covered) if covered else ["no coverage was measured"]
    print("\n".join(found), flush=True)
    return Outcome("coverage", not found, 0.0, "")


def main(arguments: Sequence[str]) -> int:
    if arguments == ["--lint"]:
        return 0 if all(outcome.passed for outcome in run_lint()) else 1
    if arguments:
        return 0 if run_pytest(arguments)[0].passed else 1
    outcomes = run_lint()
    tests, closing = run_pytest((*COVERED, *workers()))
    outcomes += [tests, check_coverage()]
    print("\n".join(map(str, ["", *outcomes])))
    print(closing)
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
