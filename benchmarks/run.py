"""A whole run: every stack, every scenario, so many times."""

import datetime
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import attrs
import trio

from benchmarks.commands import Answer
from benchmarks.figures import measured_by
from benchmarks.machine import Machine
from benchmarks.measure import GROUPS, MEASURES
from benchmarks.processes import WorkerError
from benchmarks.results import Measurement, Results, Settings
from benchmarks.stacks.stack import Running, Stack, open_stack, secrets_of_a_run


class Watch(Protocol):
    """What a run tells whoever watches it."""

    def begins(self, what: str) -> None:
        """Something is being measured."""
        ...

    def found(self, measurement: Measurement) -> None: ...


def plan(stacks: Sequence[Stack], settings: Settings) -> list[tuple[int, Stack, tuple[str, ...], str]]:
    """What is measured, in order: the repeat, the stack, scenarios that share processes, and the roles of these.

    All stacks are measured before any is measured again, so that a slow minute of the machine is nobody's alone.
    """
    wanted = {measured_by(scenario) for scenario in settings.scenarios}
    return [
        (repeat, stack, scenarios, roles)
        for repeat in range(settings.repeat)
        for stack in stacks
        for group, roles in GROUPS
        if (scenarios := tuple(one for one in group if one in wanted & stack.scenarios))
    ]


def steps_of(stacks: Sequence[Stack], settings: Settings) -> int:
    """How many measurements that is."""
    return sum(len(scenarios) for _, _, scenarios, _ in plan(stacks, settings))


def new_results(kind: str, machine: Machine, settings: Settings, stacks: Sequence[Stack]) -> Results:
    for stack in stacks:
        if version := stack.version():
            name, _, number = version.rpartition(" ")
            machine.versions[name] = number
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Results(kind, when, machine, settings, tuple(stack.name for stack in stacks))


async def run(stacks: Sequence[Stack], results: Results, watch: Watch, deadline: float) -> None:
    """Measure everything, and put it into `results`. What fails is an error there, and the run goes on.

    Args:
        deadline: seconds, after which the run breaks off; what it found by then is there.
    Cancellation: safe; every process ends, and what was found by then is in `results`.
    """
    began = time.monotonic()
    try:
        with TemporaryDirectory(prefix="agentmesh-bench-") as folder, trio.move_on_after(deadline):
            shared = secrets_of_a_run()
            for repeat, stack, scenarios, roles in plan(stacks, results.settings):
                group = Group(stack, repeat, results, watch, list(scenarios))
                await group.measure(roles, Path(folder), shared)
            results.is_whole = True
    finally:
        results.took = time.monotonic() - began


@attrs.define
class Group:
    """Scenarios of one stack that share processes. `left` are those that are still to be measured."""

    stack: Stack
    repeat: int
    results: Results
    watch: Watch
    left: list[str]

    async def measure(self, roles: str, folder: Path, shared: Answer) -> None:
        """After a failure the processes are new ones; when they do not even start, what is left has failed."""
        while self.left:
            self.watch.begins(f"{self.stack.name} {self.left[0]}")
            try:
                told = {**shared, "scenarios": list(self.left)}
                async with open_stack(self.stack, roles, folder, **told) as running:
                    await self._measure_until_failure(running)
            except WorkerError as exc:
                for scenario in self.left:
                    self._note(scenario, {}, str(exc))
                self.left.clear()

    async def _measure_until_failure(self, running: Running) -> None:
        while self.left:
            scenario = self.left.pop(0)
            self.watch.begins(f"{self.stack.name} {scenario}")
            try:
                values = await MEASURES[scenario](running, self.results.settings)
            except (WorkerError, OSError) as exc:  # of a process that is gone
                self._note(scenario, {}, str(exc))
                return
            self._note(scenario, values, None)

    def _note(self, scenario: str, values: dict[str, float], error: str | None) -> None:
        measurement = Measurement(self.stack.name, scenario, self.repeat, values, error=error)
        self.results.measurements.append(measurement)
        self.watch.found(measurement)
