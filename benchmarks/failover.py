"""How long members take to be whole again when one of their routers stops, and whether a call of theirs fails.

    python -m benchmarks.failover [--members 200] [--routers 3] [--wanted 2] [--repeat 3] [--json FILE]

Every router is a process; the members are tasks of a few. Each member calls another once a second, on a stream of its
own. One router gets SIGTERM: it tells its members to go elsewhere, and closes their sessions five seconds later. A
member is whole again when it holds as many routers as it wants, reservation included, without that one. All clocks are
one: the machine's.
"""

import json
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import attrs
import click
import trio
from rich.console import Console
from rich.table import Table

from agentmesh.types import Address
from benchmarks.commands import Answer
from benchmarks.machine import look_at_machine
from benchmarks.processes import Worker, open_worker
from benchmarks.progress import progress_console
from benchmarks.summary import percentile

WORKER = (sys.executable, "-m", "benchmarks.stacks.fleet")
ATTACH_TIMEOUT = 120.0  # seconds for all members of a process
ASK_TIMEOUT = 30.0  # seconds
WARM_UP = 2.0  # seconds, and one interval: then everybody has called once


@attrs.frozen
class Settings:
    """What is run. Times in seconds."""

    members: int
    routers: int
    wanted: int
    processes: int
    interval: float
    settle: float


@attrs.frozen
class Round:
    """One stop of one router.

    Attributes:
        took: seconds until each member that held it was whole again, the fastest first.
        left: members that were not, when the round was over.
        calls: that all members made, before the stop and after it.
        failed: those among them.
        slowest: seconds of the slowest that did not fail.
        why: the first failure.
    """

    took: tuple[float, ...]
    left: int
    calls: int
    failed: int
    slowest: float
    why: str = ""

    @property
    def is_good(self) -> bool:
        return bool(self.took) and not self.left and not self.failed


def round_of(reports: Sequence[Answer]) -> Round:
    """What the processes of members report, as one."""
    calls = [report["calls"] for report in reports]
    return Round(
        took=tuple(sorted(took for report in reports for took in report["took"])),
        left=sum(report["left"] for report in reports),
        calls=sum(one["made"] for one in calls),
        failed=sum(one["failed"] for one in calls),
        slowest=max(one["slowest"] for one in calls),
        why=next((one["why"] for one in calls if one["why"]), ""),
    )


def shares(members: int, processes: int) -> list[int]:
    """How many members each process has."""
    return [members // processes + (number < members % processes) for number in range(processes)]


def partners_of(peers: Sequence[Sequence[str]]) -> list[list[str]]:
    """Whom each member of each process calls: the one that is half of all away, so mostly in another process."""
    everybody = [peer for some in peers for peer in some]
    called = everybody[len(everybody) // 2 :] + everybody[: len(everybody) // 2]
    starts = [sum(map(len, peers[:number])) for number in range(len(peers))]
    return [called[start : start + len(some)] for start, some in zip(starts, peers, strict=True)]


async def measure(settings: Settings, folder: Path) -> Round:
    """One round, with processes of its own. Raises WorkerError."""
    key = secrets.token_hex(32)
    async with AsyncExitStack() as up:

        async def start(name: str, **told: object) -> Worker:
            return await up.enter_async_context(open_worker(name, WORKER, {"key": key, **told}, folder))

        routers = [await start(f"router {number}", role="router") for number in range(settings.routers)]
        addresses = [router.ready["address"] for router in routers]
        crowds = [
            await start(f"members {number}", role="members", routers=addresses, wanted=settings.wanted)
            for number in range(settings.processes)
        ]
        await _attach(crowds, settings)
        await trio.sleep(WARM_UP + settings.interval)
        return await _stop(routers[0], crowds, settings)


async def _attach(crowds: Sequence[Worker], settings: Settings) -> None:
    """All members are whole, and call each other."""
    peers = [list[str]() for _ in crowds]

    async def attach(number: int, count: int) -> None:
        answer = await crowds[number].ask("attach", ATTACH_TIMEOUT, count=count)
        peers[number] = answer["peers"]

    async with trio.open_nursery() as nursery:
        for number, count in enumerate(shares(settings.members, len(crowds))):
            nursery.start_soon(attach, number, count)
    for crowd, partners in zip(crowds, partners_of(peers), strict=True):
        await crowd.ask("call", ASK_TIMEOUT, partners=partners, interval=settings.interval)


async def _stop(router: Worker, crowds: Sequence[Worker], settings: Settings) -> Round:
    peer, since = Address.parse(router.ready["address"]).peer, time.monotonic()
    os.kill(router.pid, signal.SIGTERM)
    await trio.sleep(settings.settle)
    return round_of([await crowd.ask("report", ASK_TIMEOUT, router=str(peer), since=since) for crowd in crowds])


# ── all of it ──


def figures_of(rounds: Sequence[Round]) -> dict[str, float]:
    """Over all rounds: milliseconds, and counts."""
    took = [1000 * one for found in rounds for one in found.took]
    times = {name: percentile(took, share) for name, share in (("median", 50), ("p99", 99), ("last", 100)) if took}
    return {
        **times,
        "members": len(took),
        "left": sum(found.left for found in rounds),
        "calls": sum(found.calls for found in rounds),
        "failed": sum(found.failed for found in rounds),
        "slowest_call": 1000 * max(found.slowest for found in rounds),
    }


def show(rounds: Sequence[Round], settings: Settings) -> None:
    table = Table(title=f"{settings.members} members of {settings.routers} routers, {settings.wanted} each; one stops")
    for column in ("", *(f"round {number}" for number, _ in enumerate(rounds, 1)), "all"):
        table.add_column(column, justify="right" if column else "left")
    columns = [*(figures_of([found]) for found in rounds), figures_of(rounds)]
    rows = {
        "members": "members that held it",
        "median": "whole again: the median, ms",
        "p99": "  the 99th of a hundred, ms",
        "last": "  the last, ms",
        "left": "not whole again",
        "calls": "calls",
        "failed": "calls that failed",
        "slowest_call": "the slowest call, ms",
    }
    for name, text in rows.items():
        table.add_row(text, *(f"{column[name]:,.0f}" if name in column else "-" for column in columns))
    Console().print(table)
    for why in dict.fromkeys(found.why for found in rounds if found.why):
        Console().print(f"a call failed: {why}", highlight=False, markup=False)


@click.command(help=__doc__)
@click.option("--members", type=click.IntRange(2), default=200, show_default=True, help="Members that there are.")
@click.option("--routers", type=click.IntRange(2), default=3, show_default=True, help="Routers that there are.")
@click.option("--wanted", type=click.IntRange(1), default=2, show_default=True, help="Routers that a member holds.")
@click.option("--processes", type=click.IntRange(1), default=2, show_default=True, help="Processes of members.")
@click.option("--interval", default=1.0, show_default=True, help="Seconds between two calls of a member.")
@click.option("--settle", default=8.0, show_default=True, help="Seconds after the stop in which calls go on.")
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True, help="How often, with new processes.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Where to write the figures, too.")
@click.pass_context
def main(
    context: click.Context,
    members: int,
    routers: int,
    wanted: int,
    processes: int,
    interval: float,
    settle: float,
    repeat: int,
    json_file: Path | None,
) -> None:
    if wanted >= routers:
        raise click.UsageError("when one of so many routers stops, there are fewer than a member wants")
    settings = Settings(members, routers, wanted, processes, interval, settle)
    machine = look_at_machine()
    progress_console().print(f"{machine.describe()}; {machine.describe_load()}", highlight=False, style="dim")
    rounds = list[Round]()
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            rounds.append(trio.run(measure, settings, Path(folder)))
    show(rounds, settings)
    if json_file is not None:
        run = {"machine": attrs.asdict(machine), "settings": attrs.asdict(settings)}
        figures = {"figures": figures_of(rounds), "rounds": [attrs.asdict(found) for found in rounds]}
        json_file.write_text(json.dumps({**run, **figures}, indent=2))
    context.exit(0 if all(found.is_good for found in rounds) else 1)


if __name__ == "__main__":
    main()
