"""What a router's directory bears: lookups through one router that keeps many records.

    python -m benchmarks.directory [--seconds 5] [--records 10000] [--at-once 16] [--json FILE]

The router and its members are a process each on this machine, so they share its cores. Lookups per second of one core
are by the router's CPU: what the one who asks needs is not its. Members announce over the protocol as they do in any
mesh; only the bound on how often one of them may ask is lifted.
"""

import json
import logging
import os
import platform
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import attrs
import click
import trio
from rich.console import Console
from rich.table import Table

from agentmesh.node import Node
from agentmesh.protocols.directory import RECORD_TTL, Announcement, DirectoryConfig, service_key
from agentmesh.router import RouterConfig, open_router_as
from agentmesh.runtime.yamux import Allowance
from benchmarks.commands import Answer, Serve, run_worker
from benchmarks.crowd import attach_many
from benchmarks.processes import Worker, cpu_seconds, open_worker, resident_bytes
from benchmarks.stacks.mesh import LOOPBACK, open_member
from benchmarks.stacks.plane import ENROLLMENT, enter
from benchmarks.stacks.stack import secrets_of_a_run

WORKER = (sys.executable, "-m", "benchmarks.directory", "worker")
UNLIMITED = Allowance(burst=10**9, per_second=10**9)
RECORDS_EACH = 250  # of one member; a router takes 256, and its own is one of them
PATIENCE = 60.0  # seconds for a worker to do what takes as long as it takes
AIM = 2000  # lookups a second, of one core

# What is looked up, and what is found.
LOOKUPS: Mapping[str, str] = {
    "name": "a name, one has it",
    "type": "a type, twenty",
    "peer": "a member",
    "nothing": "what nobody has",
}


# ── the router's process ──


async def run_router(settings: Answer, ready: Serve) -> None:
    config = RouterConfig(enrollment=ENROLLMENT, listen=(LOOPBACK,), directory=DirectoryConfig(max_requests=UNLIMITED))
    async with open_router_as(await enter(settings["key"]), config) as router:

        async def records() -> Answer:
            await trio.lowlevel.checkpoint()
            return {"records": router.directory.statistics().records}

        await ready({"address": str(router.addresses[0])}, {"records": records})


# ── the members' process ──


def name_of(number: int) -> bytes:
    """The key of the service of this number."""
    return service_key("http", f"service-{number}")


class Crowd:
    """Members that serve very much, the first of which asks."""

    def __init__(self, settings: Answer, nursery: trio.Nursery) -> None:
        self._settings = settings
        self._nursery = nursery
        self._nodes: list[Node] = []
        self._names = 0
        self._random = Random(1)

    async def fill(self, records: int) -> Answer:
        """As many members as it takes for so many records: all serve one type, and each its own names."""
        members = -(-records // RECORDS_EACH)
        await attach_many(partial(self._nursery.start, self._stay), members)
        self._names = records - members
        numbers = iter(range(self._names))
        async with trio.open_nursery() as nursery:
            for node in self._nodes:
                nursery.start_soon(self._announce, node, [next(numbers) for _ in range(RECORDS_EACH - 1)])
        return {"members": members}

    async def _announce(self, node: Node, numbers: Sequence[int]) -> None:
        for key in (service_key("http"), *map(name_of, numbers)):
            await node.directory.provide(Announcement(key, node.addresses, 1, RECORD_TTL))

    async def _stay(self, task_status: trio.TaskStatus[None]) -> None:
        async with open_member(self._settings) as node:
            self._nodes.append(node)
            task_status.started()
            await trio.sleep_forever()

    async def look(self, what: str, seconds: float, at_once: int) -> Answer:
        """Look things up, so many at once, until the time is over. Times are milliseconds."""
        took, ask = list[float](), self._asking(what)
        end = time.perf_counter() + seconds

        async def keep_looking() -> None:
            while (began := time.perf_counter()) < end:
                await ask()
                took.append((time.perf_counter() - began) * 1000)

        began = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for _ in range(at_once):
                nursery.start_soon(keep_looking)
        return {"count": len(took), "seconds": time.perf_counter() - began, **percentiles(took)}

    def _asking(self, what: str) -> Callable[[], Awaitable[None]]:
        client, expected = self._nodes[0].directory, {"name": 1, "type": min(20, len(self._nodes)), "nothing": 0}

        def keys() -> Iterator[bytes]:
            for number in count(self._names):
                yield name_of(number if what == "nothing" else self._random.randrange(self._names))

        names = keys()

        async def find_providers() -> None:
            found = await client.find_providers(service_key("http") if what == "type" else next(names))
            assert len(found) == expected[what], what

        async def find_peer() -> None:
            assert await client.find_peer(self._random.choice(self._nodes).peer)

        return find_peer if what == "peer" else find_providers


def percentiles(took: Sequence[float]) -> Answer:
    ordered = sorted(took)
    return {f"p{part}": ordered[min(len(ordered) * part // 100, len(ordered) - 1)] for part in (50, 99)}


async def run_crowd(settings: Answer, ready: Serve) -> None:
    async with trio.open_nursery() as nursery:
        crowd = Crowd(settings, nursery)
        await ready({}, {"fill": crowd.fill, "look": crowd.look})


# ── all of it ──


@attrs.frozen
class Settings:
    seconds: float
    records: int
    at_once: int


@attrs.frozen
class Result:
    """What one kind of lookup cost. Times are milliseconds, those of CPU the router's for each."""

    what: str
    at_once: int
    rate: float  # a second
    p50: float
    p99: float
    cpu: float

    @property
    def per_core(self) -> float:
        """Lookups a second when the router has one core to itself and does nothing else."""
        return 1000 / self.cpu


@attrs.frozen
class Found:
    """What a run found.

    Attributes:
        announcing: milliseconds of the router's CPU for each record.
        memory: bytes of the router for each record.
    """

    records: int
    announcing: float
    memory: float
    lookups: Sequence[Result]


async def measure(settings: Settings) -> Found:
    shared = secrets_of_a_run()
    with TemporaryDirectory(prefix="agentmesh-bench-") as folder:
        async with open_worker("router", WORKER, {"role": "R", **shared}, Path(folder)) as router:
            told = {"role": "M", **shared, "R": router.ready}
            async with open_worker("members", WORKER, told, Path(folder)) as members:
                return await _measure(router, members, settings)


async def _measure(router: Worker, members: Worker, settings: Settings) -> Found:
    cpu, memory = cpu_seconds(router.pid), resident_bytes(router.pid)
    await members.ask("fill", PATIENCE + settings.records / 100, records=settings.records)
    records = (await router.ask("records", PATIENCE))["records"]
    announcing = (cpu_seconds(router.pid) - cpu) * 1000 / records
    grown = (resident_bytes(router.pid) - memory) / records
    lookups = [
        await look(router, members, what, at_once, settings.seconds)
        for what in LOOKUPS
        for at_once in dict.fromkeys((1, settings.at_once))
    ]
    return Found(records, announcing, grown, lookups)


async def look(router: Worker, members: Worker, what: str, at_once: int, seconds: float) -> Result:
    cpu = cpu_seconds(router.pid)
    answer = await members.ask("look", seconds + PATIENCE, what=what, seconds=seconds, at_once=at_once)
    used = (cpu_seconds(router.pid) - cpu) * 1000 / answer["count"]
    return Result(what, at_once, answer["count"] / answer["seconds"], answer["p50"], answer["p99"], used)


def show(found: Found) -> None:
    table = Table(title=f"lookups through one router of {found.records} records")
    table.add_column("looked up", no_wrap=True)
    for column in ("at once", "a second", "p50", "p99", "router's CPU", "a second, core"):
        table.add_column(column, justify="right")
    for one in found.lookups:
        figures = f"{one.at_once}|{one.rate:.0f}|{one.p50:.2f} ms|{one.p99:.2f} ms|{one.cpu:.3f} ms|{one.per_core:.0f}"
        table.add_row(LOOKUPS[one.what], *figures.split("|"))
    console = Console()
    console.print(table)
    console.print(
        f"announced: {found.announcing:.3f} ms of the router's CPU and {found.memory / 1024:.1f} KiB a record, "
        f"with what its member's session takes. The aim is {AIM} lookups a second and core.",
        highlight=False,
    )


@click.group(invoke_without_command=True, help=__doc__)
@click.option("--seconds", default=5.0, show_default=True, help="How long each measurement takes.")
@click.option(
    "--records", type=click.IntRange(1), default=10_000, show_default=True, help="Records that the router keeps."
)
@click.option("--at-once", type=click.IntRange(1, 200), default=16, show_default=True, help="Lookups under way.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Where to write the figures, too.")
@click.pass_context
def main(context: click.Context, seconds: float, records: int, at_once: int, json_file: Path | None) -> None:
    if context.invoked_subcommand is not None:
        return
    found = trio.run(measure, Settings(seconds, records, at_once))
    show(found)
    if json_file is not None:
        figures = {"machine": f"{platform.platform()}, {os.cpu_count()} cores", **attrs.asdict(found)}
        json_file.write_text(json.dumps(figures, indent=2))


@main.command("worker", hidden=True)
def worker_command() -> None:
    logging.getLogger("agentmesh").setLevel(logging.ERROR)
    run_worker({"R": run_router, "M": run_crowd})


if __name__ == "__main__":
    main()
