"""One measurement of one scenario, on a stack that is up."""

import statistics
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import trio

from benchmarks.commands import Answer
from benchmarks.figures import ON_STREAMS
from benchmarks.processes import cpu_seconds, resident_bytes
from benchmarks.results import Settings
from benchmarks.stacks.stack import CALLER, CROWD, NAMES, ROUTER, SERVER, Running
from benchmarks.summary import percentile

GIB = 2**30
STREAMS, CALLERS = 16, 64
SET_UPS = 100
SET_UP_SHARE = FAN_OUT_SHARE = 3  # times the seconds of the other scenarios
FIRST_MEMBERS = 16  # what they cost is not theirs alone
SETTLE = 1.0  # seconds from the last member's arrival to the look at the router
PATIENCE = 60.0  # seconds beyond what a command is to take
ATTACH_PATIENCE = 1.0  # seconds a member

Values = dict[str, float]
Measure = Callable[[Running, Settings], Awaitable[Values]]


@contextmanager
def counting_cpu(running: Running) -> Generator[Values]:
    """Fill in, at the end of the block, how long it took, `wall`, and the CPU seconds of each process, `cpu_<role>`."""
    values: Values = {}
    before = {role: cpu_seconds(worker.pid) for role, worker in running.workers.items()}
    began = time.monotonic()
    yield values
    values["wall"] = time.monotonic() - began
    for role, worker in running.workers.items():
        values[f"cpu_{NAMES[role]}"] = cpu_seconds(worker.pid) - before[role]


async def ask_caller(running: Running, command: str, seconds: float, **arguments: object) -> Values:
    """Have the caller measure; its answer, and everybody's CPU seconds."""
    with counting_cpu(running) as cpu:
        answer: Answer = await running.caller.ask(command, seconds + PATIENCE, seconds=seconds, **arguments)
    return {**answer, **cpu}


async def bulk(running: Running, settings: Settings) -> Values:
    values = await ask_caller(running, "bulk", settings.seconds, streams=1)
    if "S8" in running.stack.scenarios:
        values["router_cpu_per_gib"] = values["cpu_router"] / (values["bytes"] / GIB)
    return values


async def bulk_on_many(running: Running, settings: Settings) -> Values:
    return await ask_caller(running, "bulk", settings.seconds, streams=STREAMS)


async def round_trips(running: Running, settings: Settings) -> Values:
    return await ask_caller(running, "round_trips", settings.seconds)


async def requests(running: Running, settings: Settings) -> Values:
    return await ask_caller(running, "requests", settings.seconds, callers=CALLERS, standing=False)


async def standing_requests(running: Running, settings: Settings) -> Values:
    return await ask_caller(running, "requests", settings.seconds, callers=CALLERS, standing=True)


async def set_ups(running: Running, settings: Settings) -> Values:
    return await ask_caller(running, "set_ups", SET_UP_SHARE * settings.seconds, count=SET_UPS)


async def attach(running: Running, settings: Settings) -> Values:
    """The router's growth by so many idle members, after the first few."""
    assert running.router is not None
    router = running.router.pid
    await attach_members(running, FIRST_MEMBERS)
    await trio.sleep(SETTLE)
    memory = resident_bytes(router)
    with counting_cpu(running) as values:
        values |= await attach_members(running, settings.members)
    await trio.sleep(SETTLE)
    values["bytes_per_member"] = (resident_bytes(router) - memory) / settings.members
    return values


async def attach_members(running: Running, count: int) -> Values:
    answer = await running.crowd.ask("attach", PATIENCE + ATTACH_PATIENCE * count, count=count)
    return {name: float(value) for name, value in answer.items()}


async def fan_out(running: Running, settings: Settings) -> Values:
    """One event after another, each when all members have heard the one before; the first does not count."""
    count = settings.members
    await running.crowd.ask("listen", PATIENCE + ATTACH_PATIENCE * count, count=count)
    await trio.sleep(SETTLE)  # the router knows who listens
    await publish(running, 0)
    until = time.monotonic() + FAN_OUT_SHARE * settings.seconds
    took: list[float] = []
    with counting_cpu(running) as values:
        while not took or time.monotonic() < until:
            took.append(await publish(running, len(took) + 1))
    deliveries = len(took) * count
    values |= {"count": len(took), "p50": statistics.median(took), "p99": percentile(took, 99)}
    return values | {"deliveries": deliveries, "router_cpu_per_delivery": values["cpu_router"] / deliveries}


async def publish(running: Running, number: int) -> float:
    """Seconds from when the caller sends an event to when the last member has it."""
    await running.caller.ask("publish", PATIENCE, number=number)
    answer = await running.crowd.ask("heard", PATIENCE, number=number)
    return float(answer["took"])


MEASURES: dict[str, Measure] = {
    "S1": bulk,
    "S2": bulk_on_many,
    "S3": round_trips,
    "S4": requests,
    "S4k": standing_requests,
    "S5": set_ups,
    "S6": attach,
    "S7": fan_out,
}
PAIR, WITH_CROWD = ROUTER + SERVER + CALLER, ROUTER + SERVER + CROWD
EVERYBODY = PAIR + CROWD

# Which scenarios share processes, and which roles those have. Set-ups and members get new ones: nothing is warm there.
GROUPS: tuple[tuple[tuple[str, ...], str], ...] = (
    (ON_STREAMS, PAIR),
    (("S5",), PAIR),
    (("S6",), WITH_CROWD),
    (("S7",), EVERYBODY),
)
