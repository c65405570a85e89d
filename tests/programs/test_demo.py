"""`agentmesh demo` as a process: it holds, it says so, and whatever befalls it nothing stays behind."""

import os
import random
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tests.programs.programs import Machine, Running

INTERRUPTED = 130
LINES = 16  # that the demo prints before its first act is over, at least
MOMENTS = sorted(random.Random(2).sample(range(1, LINES + 1), 2))
MIB = 96  # more than is moved before a test is over


@asynccontextmanager
async def demo(machine: Machine, mib: int) -> AsyncGenerator[Running]:
    """The demo, and afterwards a look at what it left: no process, no file."""
    async with machine.running("demo", "--file-mib", str(mib)) as running:
        yield running
    await machine.none_left()
    assert [path.name for path in machine.folder.iterdir() if path.is_dir()] == []


async def test_it_holds_with_a_small_file(machine: Machine) -> None:
    async with demo(machine, 3) as running:
        await running.said("All checks held")
        assert await running.ended() == 0
    text = running.out.read_text()
    assert running.err.read_text() == ""
    for name in ("control-plane", "router-1", "router-2"):
        assert re.search(rf"{name} +up$", text, re.MULTILINE)
    for name in ("provider", "reader", "agent"):
        assert re.search(rf"{name} +attached to router-1, router-2 over TCP$", text, re.MULTILINE)
    assert re.search(r"reader +attached to router-1, router-2 over WebSocket$", text, re.MULTILINE)
    assert len(re.findall(r"3 of 3 MiB   [\d.]+ MB/s   SHA-256 equal$", text, re.MULTILINE)) == 2
    assert len(re.findall(r"(reader|agent) > router-[12] > provider, encrypted end to end", text)) == 3
    figures = r"3 MiB at \d+ MB/s over TCP, \d+ MB/s over WebSocket; SHA-256 equal; MCP tool answered in \d+ ms"
    assert re.fullmatch(rf"All checks held: {figures} \(\d+ s\)", text.splitlines()[-1])
    assert "\x1b" not in text


@pytest.mark.parametrize("line", MOMENTS)
async def test_interrupted_at_any_moment_it_leaves_nothing(machine: Machine, line: int) -> None:
    async with demo(machine, MIB) as running:
        await running.said(r"\n", times=line)
        assert await running.told(signal.SIGINT) == INTERRUPTED, running.text
    assert running.text.endswith("Interrupted. Every process has ended.\n")


@pytest.mark.parametrize("loaded", ["", "cryptography", "sqlalchemy"])
async def test_interrupted_while_it_is_still_importing_it_leaves_nothing(machine: Machine, loaded: str) -> None:
    async with demo(machine, MIB) as running:
        await running.mapped(loaded)
        assert await running.told(signal.SIGINT) != 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
async def test_other_ways_of_stopping_it_leave_nothing_either(machine: Machine, number: signal.Signals) -> None:
    async with demo(machine, MIB) as running:
        await running.said("router-2 +started")
        assert await running.told(number) == INTERRUPTED, running.text


async def test_what_it_started_ends_even_when_it_is_killed(machine: Machine) -> None:
    async with machine.running("demo", "--file-mib", str(MIB)) as running:
        await running.said("agent +started")
        assert len(machine.left()) == 7
        assert await running.told(signal.SIGKILL) == -signal.SIGKILL
    await machine.none_left()


@pytest.mark.parametrize(("name", "moment"), [("router-1", "router-2 +started"), ("provider", "act 1")])
async def test_a_process_that_dies_is_one_line_with_the_end_of_its_log(
    machine: Machine, name: str, moment: str
) -> None:
    async with demo(machine, MIB) as running:
        pid = int((await running.said(rf"{name} +started, pid (\d+)"))[1])
        await running.said(moment)
        os.kill(pid, signal.SIGKILL)
        assert await running.ended() == 1
    assert re.fullmatch(
        rf"agentmesh: {name} was killed by signal 9, and logged at the end: .+\n", running.err.read_text()
    )
