"""Short runs of real processes on loopback: what comes out, what fails well, and that nothing stays behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
import trio
from click.testing import CliRunner

from benchmarks.cli import main
from benchmarks.growth import run_growth
from benchmarks.machine import Machine
from benchmarks.processes import ROOT, WorkerError, open_worker
from benchmarks.results import Measurement, Results, Settings
from benchmarks.run import run
from benchmarks.stacks.known import AGENTMESH, HAPROXY_TLS, TCP, TLS
from benchmarks.stacks.stack import Stack
from tests.benchmarks.made import MACHINE

PATIENCE = 60.0  # seconds that a process has on a busy machine


class Quiet:
    """A watch that looks away, and counts."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    def begins(self, what: str) -> None:
        self.begun.append(what)

    def found(self, measurement: Measurement) -> None: ...


def new_results(*scenarios: str, machine: Machine = MACHINE) -> Results:
    settings = Settings(scenarios, repeat=1, seconds=0.05, members=5)
    return Results("scenarios", "2026-01-02T03:04:05+00:00", machine, settings, ())


async def measured(stack: Stack, *scenarios: str) -> dict[str, Measurement]:
    results = new_results(*scenarios)
    await run([stack], results, Quiet(), PATIENCE)
    assert results.is_whole
    return {one.scenario: one for one in results.measurements}


async def test_every_scenario_on_streams_gives_its_figures() -> None:
    found = await measured(TLS, "S1", "S2", "S3", "S4", "S4k", "S5")
    assert {name: one.error for name, one in found.items()} == dict.fromkeys(found)
    assert list(found) == ["S1", "S2", "S3", "S4k", "S4", "S5"]
    assert found["S1"].values["bytes"] >= 256 * 1024
    assert found["S2"].values["bytes"] >= 16 * 256 * 1024
    assert 0 < found["S3"].values["p50"] <= found["S3"].values["p99"]
    for name in ("S4", "S4k"):
        assert found[name].values["per_second"] > 0
    assert found["S5"].values["count"] >= 1
    assert all(one.values["cpu_caller"] > 0 for one in found.values())


async def test_a_relay_is_measured_as_the_process_that_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.measure.SETTLE", 0.01)
    found = await measured(HAPROXY_TLS, "S1", "S6", "S8")
    assert {name: one.error for name, one in found.items()} == {"S1": None, "S6": None}
    assert found["S1"].values["router_cpu_per_gib"] > 0
    assert found["S6"].values["members"] == 5


async def test_an_event_reaches_every_member_of_the_audience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.measure.SETTLE", 0.5)
    found = await measured(AGENTMESH, "S7")
    assert found["S7"].error is None
    assert found["S7"].values["deliveries"] == 5 * found["S7"].values["count"] > 0
    assert 0 < found["S7"].values["p50"] <= found["S7"].values["p99"]


def test_agentmesh_from_the_command_line(tmp_path: Path) -> None:
    """As somebody would type it: a router, a server and a caller, and a number at the end."""
    path = tmp_path / "results.json"
    arguments = ["--scenario", "S8", "--baseline", "none", "--repeat", "1", "--seconds", "0.1", "--json", str(path)]
    result = CliRunner().invoke(main, arguments, prog_name="python -m benchmarks")
    assert result.exit_code == 0, result.output
    results = Results.from_json(path.read_text())
    assert results.errors() == []
    assert results.is_whole
    (measurement,) = results.measurements
    assert measurement.values["router_cpu_per_gib"] > 0
    assert "S8: the router's CPU time for the bytes of S1" in result.output


async def test_growth_of_a_stack_that_does_not_start_is_an_error_for_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = attrs.evolve(TCP, modules=dict.fromkeys("RBA", "benchmarks.stacks.nothing"))
    monkeypatch.setattr("benchmarks.growth.AGENTMESH", broken)
    results = new_results()
    await run_growth(results, {"streams": (2, 4)}, Quiet(), PATIENCE)
    assert [(one.size, one.values) for one in results.measurements] == [(2, {}), (4, {})]
    assert all("No module named" in error for error in results.errors())


async def test_a_stack_that_fails_is_an_error_and_the_others_go_on() -> None:
    """Its processes are not even asked for the second scenario."""
    broken = attrs.evolve(
        TCP, name="broken", modules={"B": "benchmarks.stacks.plain", "A": "benchmarks.stacks.nothing"}
    )
    results = new_results("S1", "S3")
    await run([broken, TCP], results, Quiet(), PATIENCE)
    errors = {(one.stack, one.scenario): one.error for one in results.measurements}
    assert errors["loopback-trio", "S1"] is errors["loopback-trio", "S3"] is None
    for scenario in ("S1", "S3"):
        assert "caller of broken ended: " in str(errors["broken", scenario])


async def test_a_run_breaks_off_at_its_deadline_and_keeps_what_it_found() -> None:
    results = new_results("S1")
    await run([TCP], results, Quiet(), deadline=0.0)
    assert not results.is_whole
    assert results.measurements == []


async def test_a_worker_that_does_not_answer_is_told_from_one_that_cannot(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.readline(); print('{}', flush=True); sys.stdin.read()"]
    async with open_worker("silent", command, {}, tmp_path) as worker:
        with pytest.raises(WorkerError, match=r"silent, work: no answer in 0 s"):
            await worker.ask("work", 0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_however_it_ends_no_process_is_left(number: signal.Signals, tmp_path: Path) -> None:
    """At Ctrl-C it ends them itself; when it is killed they see that it is gone."""
    arguments = ["--scenario", "S1", "--baseline", "none", "--seconds", "60", "--repeat", "1"]
    mark = f"BENCHMARK_TEST={tmp_path}"
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        env={**os.environ, "BENCHMARK_TEST": str(tmp_path), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        trio.run(_wait_until, lambda: any(map(is_worker, marked(mark))))
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == {signal.SIGINT: 128 + signal.SIGINT, signal.SIGKILL: -signal.SIGKILL}[number]
    assert b"Traceback" not in stderr
    assert (b"The run was broken off" in stdout) == (number is signal.SIGINT)
    trio.run(_wait_until, lambda: not marked(mark))


async def _wait_until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 - seen from outside
            await trio.sleep(0.02)


def is_worker(process: int) -> bool:
    """Whether it measures: by then the run heeds signals. What looks at the machine before that is another."""
    try:
        return b"benchmarks.stacks" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:  # gone
        return False


def marked(mark: str) -> list[int]:
    """Processes that have this in their environment."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:  # gone, or another's
            continue
        if mark.encode() in environment.split(b"\0"):
            found.append(int(folder.name))
    return found
