"""How cost grows: with members at a router, with streams on a circuit, with circuits through a router."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import trio

from benchmarks.commands import Answer
from benchmarks.measure import (
    ATTACH_PATIENCE,
    FIRST_MEMBERS,
    GIB,
    PATIENCE,
    SETTLE,
    Values,
    ask_caller,
    attach_members,
    counting_cpu,
)
from benchmarks.processes import WorkerError, cpu_seconds, resident_bytes
from benchmarks.results import Measurement, Results
from benchmarks.run import Watch
from benchmarks.stacks.known import AGENTMESH
from benchmarks.stacks.stack import CALLER, CROWD, ROUTER, SERVER, Running, open_stack, secrets_of_a_run

SIZES: dict[str, tuple[int, ...]] = {"members": (125, 250, 500), "streams": (32, 128, 512), "circuits": (8, 24, 72)}
ROLES = {
    "members": ROUTER + CROWD,
    "streams": ROUTER + SERVER + CALLER,
    "circuits": ROUTER + SERVER + CROWD,
}
IDLE_SECONDS = 16.0  # an idle router is watched for: all members send one ping in 15


@attrs.frozen
class Cost:
    """What is fitted. An exponent of 1 means in proportion to the size, 0 independent of it.

    Attributes:
        what: grows: a key of SIZES.
        value: among a measurement's values.
        scale: from bytes and seconds to the unit that is shown.
    """

    what: str
    value: str
    title: str
    unit: str
    scale: float = 1.0


COSTS = (
    Cost("members", "router_bytes", "router's memory for all of them", "MiB", 2**-20),
    Cost("members", "router_cpu_attach", "router's CPU until all are attached", "s"),
    Cost("members", "router_cpu_idle", "router's CPU when all are idle", "ms/s", 1e3),
    Cost("streams", "cpu_per_request", "CPU of all three processes per request", "µs", 1e6),
    Cost("streams", "cpu_per_gib", "CPU of all three processes per GiB", "s"),
    Cost("streams", "server_bytes", "server's memory for standing streams", "KiB", 2**-10),
    Cost("circuits", "router_bytes", "router's memory for all of them", "KiB", 2**-10),
    Cost("circuits", "router_cpu_open", "router's CPU until all are open", "s"),
    Cost("circuits", "router_cpu_per_gib", "router's CPU per GiB over all of them at once", "s"),
)


def _router(running: Running) -> int:
    assert running.router is not None
    return running.router.pid


async def members(running: Running, size: int, seconds: float) -> Values:
    """So many members attach and stay idle."""
    router = _router(running)
    await attach_members(running, FIRST_MEMBERS)
    await trio.sleep(SETTLE)
    memory = resident_bytes(router)
    with counting_cpu(running) as cpu:
        await attach_members(running, size)
    await trio.sleep(SETTLE)
    grown = resident_bytes(router) - memory
    began, used = time.monotonic(), cpu_seconds(router)
    await trio.sleep(IDLE_SECONDS)
    idle = (cpu_seconds(router) - used) / (time.monotonic() - began)
    return {"router_bytes": grown, "router_cpu_attach": cpu["cpu_router"], "router_cpu_idle": idle}


async def streams(running: Running, size: int, seconds: float) -> Values:
    """So many streams on one circuit: idle, then with one small request each at a time; then as many with bulk."""
    server = running.workers[SERVER].pid
    await _hold(running, 1)  # what the circuit costs is not theirs
    memory = resident_bytes(server)
    await _hold(running, size)
    grown = resident_bytes(server) - memory
    small = await ask_caller(running, "requests_held", seconds)
    large = await ask_caller(running, "bulk", seconds, streams=size)
    return {
        "server_bytes": grown,
        "cpu_per_request": _all_cpu(small) / small["count"],
        "cpu_per_gib": _all_cpu(large) / (large["bytes"] / GIB),
    }


async def _hold(running: Running, count: int) -> Answer:
    return await running.caller.ask("hold", PATIENCE, streams=count)


def _all_cpu(values: Values) -> float:
    return sum(value for name, value in values.items() if name.startswith("cpu_"))


async def circuits(running: Running, size: int, seconds: float) -> Values:
    """So many members, each with a circuit of its own to the server."""
    router = _router(running)
    await _open_circuits(running, 1)
    memory = resident_bytes(router)
    with counting_cpu(running) as opening:
        await _open_circuits(running, size - 1)
    await trio.sleep(SETTLE)
    grown = resident_bytes(router) - memory
    with counting_cpu(running) as sending:
        sent = await running.crowd.ask("bulk", seconds + PATIENCE, seconds=seconds)
    return {
        "router_bytes": grown,
        "router_cpu_open": opening["cpu_router"],
        "router_cpu_per_gib": sending["cpu_router"] / (sent["bytes"] / GIB),
    }


async def _open_circuits(running: Running, count: int) -> Answer:
    return await running.crowd.ask("open_circuits", PATIENCE + ATTACH_PATIENCE * count, count=count)


MEASURES: dict[str, Callable[[Running, int, float], Awaitable[Values]]] = {
    "members": members,
    "streams": streams,
    "circuits": circuits,
}


async def run_growth(results: Results, sizes: dict[str, tuple[int, ...]], watch: Watch, deadline: float) -> None:
    """Measure every size of everything that grows, so many times, and put it into `results`.

    Args:
        sizes: of what is to grow; keys of SIZES.
        deadline: seconds, after which the run breaks off; what it found by then is there.
    Cancellation: safe; every process ends, and what was found by then is in `results`.
    """
    began = time.monotonic()
    try:
        with TemporaryDirectory(prefix="agentmesh-bench-") as folder, trio.move_on_after(deadline):
            shared = secrets_of_a_run()
            steps = [(what, size) for what, some in sizes.items() for size in some]
            for repeat in range(results.settings.repeat):
                for what, size in steps:
                    watch.begins(f"{size} {what}")
                    values, error = await _measure(what, size, results.settings.seconds, Path(folder), shared)
                    measurement = Measurement(AGENTMESH.name, what, repeat, values, size, error)
                    results.measurements.append(measurement)
                    watch.found(measurement)
            results.is_whole = True
    finally:
        results.took = time.monotonic() - began


async def _measure(what: str, size: int, seconds: float, folder: Path, shared: Answer) -> tuple[Values, str | None]:
    try:
        async with open_stack(AGENTMESH, ROLES[what], folder, **shared) as running:
            return await MEASURES[what](running, size, seconds), None
    except (WorkerError, OSError) as exc:
        return {}, str(exc)
