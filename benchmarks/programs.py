"""agentmesh's own programs as processes: started, heard by what they log, read by what they count, and none left."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import trio
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.processes import ROOT, WorkerError, environment

MODULE = "agentmesh.demo.child"  # `agentmesh …` that ends when its standard input does, however we end
START_TIMEOUT = 120.0  # seconds; long, as the machine may be busy
STOP_TIMEOUT = 60.0
LOOK_INTERVAL = 0.05
LAST_WORDS = 300  # characters
GET_TIMEOUT = 60.0

Metrics = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


class Program:
    """A running program. Made by `open_program`.

    Attributes:
        name: for people.
        log: what it logs, and what it prints.
    """

    def __init__(self, name: str, process: trio.Process, log: Path) -> None:
        self.name, self.log = name, log
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    async def said(self, pattern: str) -> str:
        """The first group of `pattern`, once that is in its log. Raises WorkerError."""
        with trio.move_on_after(START_TIMEOUT):
            while (found := re.search(pattern, self.log.read_text(errors="replace"))) is None:
                self._check()
                await trio.sleep(LOOK_INTERVAL)
            return found[1]
        raise WorkerError(f"{self.name} did not say {pattern!r} in {START_TIMEOUT:.0f} s")

    async def ended(self) -> int:
        """Its exit status, once it has ended."""
        return await self._process.wait()

    async def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Its exit status after a signal; it is killed STOP_TIMEOUT seconds after it."""
        if not self.has_ended:
            self._process.send_signal(number)
        with trio.move_on_after(STOP_TIMEOUT):
            return await self._process.wait()
        self._process.kill()
        return await self._process.wait()

    def _check(self) -> None:
        if self.has_ended:
            words = self.log.read_text(errors="replace").strip()[-LAST_WORDS:]
            raise WorkerError(f"{self.name} ended with {self._process.returncode}: {words or 'it said nothing'}")


@asynccontextmanager
async def open_program(name: str, arguments: Sequence[str], folder: Path) -> AsyncGenerator[Program]:
    """Run `agentmesh arguments…` in `folder` for as long as the block lasts; it is killed if it is still there then."""
    log = folder / f"{name.replace(' ', '-')}.log"
    with log.open("wb") as out:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", MODULE, *arguments],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**environment(), "PYTHONPATH": os.pathsep.join([str(ROOT), *_python_path()])},
            start_new_session=True,  # Ctrl-C is for us, and we end it
        )
    try:
        yield Program(name, process, log)
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()
            if process.stdin is not None:
                await process.stdin.aclose()


def _python_path() -> list[str]:
    return [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]


async def read_metrics(url: str) -> Metrics:
    """All of a program's, by name and labels. Raises WorkerError."""
    try:
        async with httpx.AsyncClient(trust_env=False, timeout=GET_TIMEOUT) as client:
            text = (await client.get(f"{url}/metrics")).text
    except httpx.HTTPError as exc:
        raise WorkerError(f"{url}/metrics: {type(exc).__name__} {exc}") from exc
    return metrics_in(text)


def metrics_in(text: str) -> Metrics:
    """Those of Prometheus' text format."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value_of(metrics: Metrics, name: str, **labels: str) -> float:
    """One of them; KeyError when it is not there."""
    return metrics[name, frozenset(labels.items())]
