"""How long an event takes from the control plane to the last of very many members.

    python -m benchmarks.fanout [--members 200] [--routers 4] [--processes 2] [--events 20] [--json FILE]

The control plane, every router and a few crowds of members are a process each on this machine, and share its cores. The
event is the ban of a peer that nobody knows: signed by the control plane, put into its database, published to the
routers by floodsub and passed on by each to its own members. A member has it when it has verified it and honours the
ban. The time is from when the control plane is asked until then, and each event waits for the one before.
"""

import json
import statistics
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import click
import trio
from rich.console import Console
from rich.table import Table

from benchmarks.failover import shares
from benchmarks.machine import look_at_machine
from benchmarks.processes import Worker, cpu_seconds, open_worker
from benchmarks.progress import progress_console
from benchmarks.summary import percentile

WORKER = (sys.executable, "-m", "benchmarks.stacks.told")
ATTACH_AT_ONCE = 50  # members of a process, between two lines of progress
ATTACH_PATIENCE = 2.0  # seconds for each of them
PATIENCE = 120.0  # seconds for everything else
AIM = 500.0  # milliseconds until the last of 2,000 members over four routers has it
CONTROL_PLANE = 1  # link of each router to it


@attrs.frozen
class Settings:
    """What is run."""

    members: int
    routers: int
    processes: int
    events: int


@attrs.frozen
class Found:
    """What a run found.

    Attributes:
        took: seconds until the last member had each event.
        routers_cpu, members_cpu: microseconds of all routers, and of all members, for each delivery.
    """

    took: Sequence[float]
    routers_cpu: float
    members_cpu: float

    def figures(self) -> dict[str, float]:
        """Milliseconds and microseconds."""
        took = [1000 * one for one in self.took]
        return {
            "median": statistics.median(took),
            "p99": percentile(took, 99),
            "worst": max(took),
            "routers_cpu": self.routers_cpu,
            "members_cpu": self.members_cpu,
        }


async def measure(settings: Settings, folder: Path, say: Callable[[str], None]) -> Found:
    """One run. Raises WorkerError."""
    async with AsyncExitStack() as up:

        async def start(name: str, **told: object) -> Worker:
            return await up.enter_async_context(open_worker(name, WORKER, {"folder": str(folder), **told}, folder))

        plane = await start("control plane", role="plane", routers=settings.routers)
        routers = [
            await start(f"router {number}", role="router", number=number, plane=plane.ready)
            for number in range(settings.routers)
        ]
        told = {"key": plane.ready["key"], "routers": [router.ready["address"] for router in routers]}
        crowds = [await start(f"members {number}", role="members", **told) for number in range(settings.processes)]
        counts = shares(settings.members, len(crowds))
        await together(*(partial(attach, *one, say) for one in zip(crowds, counts, strict=True)))
        await linked(routers, counts)
        return await publish_all(plane, routers, crowds, settings, say)


async def together(*work: Callable[[], Awaitable[None]]) -> None:
    async with trio.open_nursery() as nursery:
        for one in work:
            nursery.start_soon(one)


async def attach(crowd: Worker, count: int, say: Callable[[str], None]) -> None:
    """So many members of one process, spread over the routers."""
    for done in range(0, count, ATTACH_AT_ONCE):
        some = min(ATTACH_AT_ONCE, count - done)
        await crowd.ask("attach", PATIENCE + ATTACH_PATIENCE * some, count=some)
        say(f"{crowd.name}: {done + some} of {count} attached")


async def linked(routers: Sequence[Worker], counts: Sequence[int]) -> None:
    """Until all links for events are there. The members of each process take the routers in turn."""
    for number, router in enumerate(routers):
        members = sum(shares(count, len(routers))[number] for count in counts)
        await router.ask("linked", PATIENCE, links=members + len(routers) - 1 + CONTROL_PLANE)
    await trio.sleep(1.0)


async def publish_all(
    plane: Worker, routers: Sequence[Worker], crowds: Sequence[Worker], settings: Settings, say: Callable[[str], None]
) -> Found:
    """One event after another. The first does not count."""
    await publish(plane, crowds)
    before = cpu_of(routers), cpu_of(crowds)
    took = list[float]()
    for _ in range(settings.events):
        took.append(await publish(plane, crowds))
        say(f"event {len(took)} of {settings.events}: {1000 * took[-1]:.0f} ms")
    deliveries = settings.events * settings.members / 1e6
    used = cpu_of(routers), cpu_of(crowds)
    return Found(took, *((after - now) / deliveries for now, after in zip(before, used, strict=True)))


async def publish(plane: Worker, crowds: Sequence[Worker]) -> float:
    """Seconds from when the control plane is asked to until the last member has heard."""
    said = await plane.ask("ban", PATIENCE)
    heard = [await crowd.ask("heard", PATIENCE, peer=said["peer"]) for crowd in crowds]
    return max(float(one["last"]) for one in heard) - float(said["said"])


def cpu_of(workers: Sequence[Worker]) -> float:
    return sum(cpu_seconds(worker.pid) for worker in workers)


def show(found: Found, settings: Settings) -> None:
    table = Table(title=f"an event to {settings.members} members over {settings.routers} routers", show_header=False)
    rows = {
        "median": "the last member has it: the median, ms",
        "p99": "  the 99th of a hundred, ms",
        "worst": "  the slowest event, ms",
        "routers_cpu": "CPU of routers for each delivery, µs",
        "members_cpu": "CPU of each member, µs",
    }
    table.add_column()
    table.add_column(justify="right")
    for name, value in found.figures().items():
        table.add_row(rows[name], f"{value:,.0f}")
    console = Console()
    console.print(table)
    console.print(f"The aim is {AIM:.0f} ms with 2,000 members over four routers.", highlight=False)


@click.command(help=__doc__)
@click.option("--members", type=click.IntRange(1), default=200, show_default=True, help="Members that there are.")
@click.option("--routers", type=click.IntRange(1), default=4, show_default=True, help="Routers that there are.")
@click.option("--processes", type=click.IntRange(1), default=2, show_default=True, help="Processes of members.")
@click.option("--events", type=click.IntRange(1), default=20, show_default=True, help="Events, one after another.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Where to write the figures, too.")
def main(members: int, routers: int, processes: int, events: int, json_file: Path | None) -> None:
    settings, machine, progress = Settings(members, routers, processes, events), look_at_machine(), progress_console()
    progress.print(f"{machine.describe()}; {machine.describe_load()}", highlight=False, style="dim")
    with TemporaryDirectory(prefix="agentmesh-bench-") as folder:
        say = partial(progress.print, highlight=False, style="dim")
        found = trio.run(measure, settings, Path(folder), say)
    show(found, settings)
    if json_file is not None:
        run = {"machine": attrs.asdict(machine), "settings": attrs.asdict(settings)}
        json_file.write_text(json.dumps({**run, "figures": found.figures(), "took": found.took}, indent=2))


if __name__ == "__main__":
    main()
