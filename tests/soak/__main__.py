"""Soak a mesh: `python -m tests.soak --seed 7 --members 200 --minutes 30`, or `--real --seconds 300`.

Without --real the network is simulated and the time virtual, and a seed does the same every time. Exits 1 when anything
was lost, hangs or is left over.
"""

import argparse
import functools
import gc
import logging
import os
import resource
import sys
import time

import trio

from agentmesh.testing import run
from tests.soak.loopback import LoopbackWorld
from tests.soak.report import fingerprint, report
from tests.soak.scenario import Rates, make_scenario
from tests.soak.simulated import SimulatedWorld
from tests.soak.soak import Soak

DESCRIPTORS = 16384  # eight a member, and some
HASH_SEED = "0"  # sets of strings have an order too


class Errors(logging.Handler):
    """Keeps what the library calls an error: there must be none."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="of everything; another one each time by default")
    parser.add_argument("--members", type=int, default=200)
    parser.add_argument("--routers", type=int, default=3)
    duration = parser.add_mutually_exclusive_group()
    duration.add_argument("--seconds", type=float, default=300.0, help="how long things go wrong")
    duration.add_argument("--minutes", type=lambda text: 60 * float(text), dest="seconds")
    parser.add_argument("--real", action="store_true", help="sockets on the loopback interface, and real time")
    parser.add_argument("--ping-interval", type=float, default=15.0, help="of real sessions, in seconds")
    rates = Rates()
    parser.add_argument("--faults", type=float, default=rates.faults, help="per member and minute")
    parser.add_argument("--transfers", type=float, default=rates.transfers, help="per member and minute")
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    if not arguments.real and os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": HASH_SEED})
    seed: int = arguments.seed if arguments.seed is not None else time.time_ns() % 1_000_000
    print(
        f"python -m tests.soak --seed {seed} --members {arguments.members} --routers {arguments.routers} "
        f"--seconds {arguments.seconds:g} --faults {arguments.faults:g} --transfers {arguments.transfers:g}"
        f"{' --real' if arguments.real else ''}",
        flush=True,
    )
    errors = Errors()
    logging.getLogger("agentmesh").addHandler(errors)
    logging.getLogger("agentmesh").setLevel(logging.ERROR)
    gc.set_threshold(50_000, 20, 50)  # as much as a fifth of the time goes into collections otherwise
    scenario = make_scenario(
        seed,
        members=arguments.members,
        routers=arguments.routers,
        seconds=arguments.seconds,
        rates=Rates(faults=arguments.faults, transfers=arguments.transfers),
    )
    began = time.monotonic()
    if arguments.real:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard), hard))
        soak = Soak(LoopbackWorld(seed, arguments.ping_interval), scenario)
        trio.run(soak.run)
    else:
        world = SimulatedWorld(seed)
        soak = Soak(world, scenario)
        run(functools.partial(soak.run), seed=seed)
        print(f"fingerprint   {fingerprint(soak, world.network.trace)}")
    soak.violations += errors.texts
    print(report(soak))
    print(f"{'FAILED' if soak.violations else 'passed'} after {time.monotonic() - began:.1f} s", flush=True)
    return 1 if soak.violations else 0


if __name__ == "__main__":
    sys.exit(main())
