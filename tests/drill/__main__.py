"""Drill a fleet: `python -m tests.drill --members 3000`. Exits 1 when a member was left behind, or moved too often."""

import argparse
import gc
import logging
import os
import resource
import sys
import time

from agentmesh.testing import run
from tests.drill.churn import Churn
from tests.drill.drill import EVENTS, Drill

HASH_SEED = "0"  # sets of strings have an order too


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.drill", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--members", type=int, default=300)
    parser.add_argument("--routers", type=int, default=6)
    parser.add_argument("--events", nargs="+", choices=EVENTS, default=EVENTS, help="all of these unless given")
    parser.add_argument("--hours", type=float, default=None, help="of churn instead; for a few members")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": HASH_SEED})
    logging.disable(logging.ERROR)
    gc.set_threshold(100_000, 50, 50)  # there is much of everything, and it stays
    numbers, began = (arguments.seed, arguments.members, arguments.routers), time.monotonic()
    drill = (
        Drill(*numbers, events=arguments.events) if arguments.hours is None else Churn(*numbers, hours=arguments.hours)
    )
    fingerprint = run(drill.run, seed=arguments.seed)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"fingerprint {fingerprint}, after {time.monotonic() - began:.0f} s, {peak:.0f} MiB")
    for violation in drill.violations:
        print("WRONG:", violation)
    return 1 if drill.violations else 0


if __name__ == "__main__":
    sys.exit(main())
