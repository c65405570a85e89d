"""What the pool costs, and what it brings: opens through it, and bytes over a link that loses packets.

    python -m benchmarks pool [--json FILE] [--charts FOLDER]

A router, a process of an agent with its target, and a client of the agent's are processes. First on loopback: a stream
straight to the target, one by way of the agent with one connection, and with four. Then the agent is behind a link of
50 ms and 1 % loss each round trip (a network namespace and a process that drops packets; root only, else left out):
bytes from the target over 1, 2, 4 and 8 connections, and over as many as the agent finds that it needs.
"""

import secrets
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import click
import trio

from benchmarks.machine import look_at_machine
from benchmarks.options import Output
from benchmarks.pool_report import CONTROLLER, DECISION, DIRECT, LOSS, OPENS, POOL, RELAYED, name_of
from benchmarks.processes import Worker, WorkerError, cpu_seconds, open_worker
from benchmarks.progress import progress_console
from benchmarks.results import Measurement, Results, Settings
from benchmarks.run import new_results
from benchmarks.stacks.lossy import why_not

POOLED = (sys.executable, "-m", "benchmarks.stacks.pooled")
LOSSY = (sys.executable, "-m", "benchmarks.stacks.lossy")
LOOPBACK = "127.0.0.1"
COUNTS = (1, 2, 4, 8)
ONE_WAY, LOSS_SHARE = 0.025, 0.005  # seconds, and of packets: 50 ms and 1 % for a round trip
STREAMS = 16  # that carry bytes at once
PIECE = (
    128 * 1024
)  # bytes of a stream while the agent finds out: streams do not move, and only new ones use what is new
AT_ONCE = 32  # streams that are opened at once
WARM_UP = 3.0  # seconds that do not count
ASK_TIMEOUT = 90.0
DEADLINE = 230.0  # seconds for all of it
LOOK_INTERVAL = 1.0


@attrs.frozen
class Plan:
    """How long everything takes, in seconds.

    Attributes:
        opens: each of three measurements of opens, with each of `counts` connections.
        pour: bytes over one number of connections.
        find: the agent finds how many it needs, looking every `interval`.
    """

    opens: float = 2.0
    counts: tuple[int, ...] = (1, 4)
    pour: float = 8.0
    find: float = 60.0
    interval: float = 2.0


@attrs.define
class Bench:
    """A run, and what it has found."""

    results: Results
    plan: Plan
    folder: Path
    key: str = attrs.Factory(lambda: secrets.token_hex(32))
    registry: str = ""

    def note(
        self, stack: str, scenario: str, values: dict[str, float], size: int = 0, error: str | None = None
    ) -> None:
        self.results.measurements.append(Measurement(stack, scenario, 0, values, size, error))
        text = error or ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        progress_console().print(f"{stack} {scenario} {size or ''}: {text}", style="dim", highlight=False, markup=False)

    @asynccontextmanager
    async def agent(
        self, connections: dict[str, Any], link: Worker | None = None
    ) -> AsyncGenerator[tuple[Worker, Worker]]:
        """A router, and an agent with so many connections, behind a link if there is one. Raises WorkerError."""
        hosts = [LOOPBACK] if link is None else [LOOPBACK, link.ready["address"]]
        inside = () if link is None else ("nsenter", f"--net=/proc/{link.pid}/ns/net")
        async with AsyncExitStack() as stack:

            async def start(name: str, command: Sequence[str], **told: Any) -> Worker:
                settings = {"role": name, "key": self.key, **told}
                return await stack.enter_async_context(open_worker(name, command, settings, self.folder))

            registry = str(self.folder / f"{secrets.token_hex(4)}.db")
            router = await start("router", POOLED, hosts=hosts, others=[], registry=registry)
            with TemporaryDirectory(dir=self.folder) as folder:
                agent = await start(
                    "agent",
                    (*inside, *POOLED),
                    router=router.ready["addresses"][-1],
                    connections=connections,
                    folder=folder,
                )
                await agent.ask("settle", ASK_TIMEOUT, count=connections["min"])
                self.registry = registry
                yield router, agent

    @asynccontextmanager
    async def another_router(self, router: Worker) -> AsyncGenerator[Worker]:
        """One that has no connections of the agent, and knows the one that has."""
        told = {"hosts": [LOOPBACK], "others": router.ready["addresses"][:1], "registry": self.registry}
        async with open_worker(
            "another router", POOLED, {"role": "router", "key": self.key, **told}, self.folder
        ) as another:
            yield another

    @asynccontextmanager
    async def client(self, agent: Worker, router: Worker | None) -> AsyncGenerator[Worker]:
        """A client; of the target itself when there is no router."""
        settings: dict[str, Any] = {"role": "client", "key": self.key, "port": agent.ready["port"]}
        if router is not None:
            settings["router"] = router.ready["addresses"][0]
        async with open_worker("client", POOLED, settings, self.folder) as client:
            yield client


# ── on loopback ──


async def measure_opens(bench: Bench) -> None:
    for number, count in enumerate(bench.plan.counts):
        async with bench.agent({"min": count, "max": count}) as (router, agent):
            if number == 0:
                async with bench.client(agent, None) as client:
                    await _measure_opens(bench, DIRECT, client, {"agent": agent})
            async with bench.client(agent, router) as client:
                await _measure_opens(bench, name_of(count), client, {"agent": agent, "router": router})
            if number == 0:
                async with bench.another_router(router) as another, bench.client(agent, another) as client:
                    roles = {"agent": agent, "router": router, "other": another}
                    await _measure_opens(bench, RELAYED, client, roles)


async def _measure_opens(bench: Bench, stack: str, client: Worker, workers: dict[str, Worker]) -> None:
    seconds, workers = bench.plan.opens, {"client": client, **workers}
    values: dict[str, float] = {}
    for command, arguments in (("opens", {}), ("round_trips", {}), ("rush", {"at_once": AT_ONCE})):
        before = {role: cpu_seconds(worker.pid) for role, worker in workers.items()}
        values |= await client.ask(command, seconds + ASK_TIMEOUT, seconds=seconds, **arguments)
        spent = {role: cpu_seconds(worker.pid) - before[role] for role, worker in workers.items()}
    values |= {f"cpu_{role}": used / values["rushed"] for role, used in spent.items()}
    bench.note(stack, OPENS, values)


# ── behind a link that loses packets ──


async def measure_loss(bench: Bench) -> None:
    if reason := why_not():
        bench.results.left_out["loss"] = reason
        progress_console().print(f"left out: {reason}", style="yellow", highlight=False)
        return
    settings = {"role": "link", "delay": ONE_WAY, "loss": LOSS_SHARE}
    try:
        async with open_worker("link", LOSSY, settings, bench.folder) as link:
            for count in COUNTS:
                await _measure_loss(bench, link, count)
            await _measure_controller(bench, link)
            counted = await link.ask("count", ASK_TIMEOUT)
    except (WorkerError, OSError, subprocess.CalledProcessError) as exc:
        bench.note(LOSS, LOSS, {}, error=str(exc))
        return
    lost, passed = sum(counted["lost"]), sum(counted["passed"])
    bench.note(
        f"link, {link.ready['control']}", LOSS, {"lost": lost, "passed": passed, "share": lost / (lost + passed)}
    )


async def _measure_loss(bench: Bench, link: Worker, count: int) -> None:
    async with (
        bench.agent({"min": count, "max": count}, link) as (router, agent),
        bench.client(agent, router) as client,
    ):
        await client.ask("pour", ASK_TIMEOUT, streams=STREAMS)
        await trio.sleep(WARM_UP)
        first = await client.ask("poured", ASK_TIMEOUT)
        await trio.sleep(bench.plan.pour)
        last = await client.ask("poured", ASK_TIMEOUT)
        rate = (last["bytes"] - first["bytes"]) / (last["at"] - first["at"])
        bench.note(name_of(count), LOSS, {"bytes_per_second": rate}, size=count)


async def _measure_controller(bench: Bench, link: Worker) -> None:
    """From one connection on, as many as the agent finds of use: how many it has, and what came, by the second."""
    plan = bench.plan
    connections = {
        "min": 1,
        "max": COUNTS[-1],
        "high_watermark": 4 * STREAMS,  # so that it is not the streams that it counts
        "evaluation_interval": plan.interval,
        "cooldown": 3 * plan.interval,
    }
    async with bench.agent(connections, link) as (router, agent), bench.client(agent, router) as client:
        await client.ask("pour", ASK_TIMEOUT, streams=STREAMS, size=PIECE)
        began, before = time.perf_counter(), await client.ask("poured", ASK_TIMEOUT)
        looked: dict[str, Any] = {}
        while time.perf_counter() < began + plan.find:
            await trio.sleep(LOOK_INTERVAL)
            looked = await agent.ask("look", ASK_TIMEOUT)
            after = await client.ask("poured", ASK_TIMEOUT)
            rate = (after["bytes"] - before["bytes"]) / (after["at"] - before["at"])
            at = time.perf_counter() - began
            bench.note(
                CONTROLLER, CONTROLLER, {"at": at, "connections": looked["connections"], "bytes_per_second": rate}
            )
            before = after
        for record in looked.get("records", []):
            what = f"{record.pop('decision')}: {record.pop('reason')}"
            bench.results.measurements.append(Measurement(what, DECISION, 0, record))


async def measure(bench: Bench, lossy: bool = True) -> None:
    """All of it, into the results. Cancellation: safe; every process ends."""
    began = time.monotonic()
    try:
        with trio.move_on_after(DEADLINE) as scope:
            await measure_opens(bench)
            if lossy:
                await measure_loss(bench)
        bench.results.is_whole = not scope.cancelled_caught
    finally:
        bench.results.took = time.monotonic() - began


@click.command("pool", help=__doc__, short_help="Measure what the pool costs and brings.")
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write here."
)
@click.option(
    "--charts", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER", help="Draw pool.png and pool.svg."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=2.0,
    show_default=True,
    help="Of each measurement of opens.",
)
@click.option("--loss/--no-loss", default=True, show_default=True, help="Also over a link that loses packets.")
def pool(json_path: Path | None, charts: Path | None, seconds: float, loss: bool) -> None:
    output = Output(json_path, None, charts)
    output.check()
    results = new_results(POOL, look_at_machine(), Settings((), 1, seconds, 0), [])
    with TemporaryDirectory(prefix="agentmesh-pool-") as folder:
        trio.run(measure, Bench(results, Plan(opens=seconds), Path(folder)), loss)
    output.show(results)
