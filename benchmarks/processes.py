"""Workers as whoever runs them sees them: started, asked, and gone at the end of their block, whatever happens."""

import json
import os
import subprocess
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from agentmesh.errors import MeshError
from benchmarks.commands import Answer

ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT = 60.0  # seconds until a worker is ready; long, as the machine may be busy
STOP_TIMEOUT = 2.0  # seconds that a worker has to end by itself when its input has ended
LOG_CHARACTERS = 300  # of what a worker that died said last


class WorkerError(MeshError):
    """A worker could not do what it was asked to, is gone, or did not answer in time."""


class Worker:
    """A process that takes commands. Made by `open_worker`.

    Attributes:
        name: for people.
        ready: what it said when it was up.
    """

    ready: Answer

    def __init__(self, name: str, process: trio.Process, log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log
        self._pending = b""

    @property
    def pid(self) -> int:
        """Of the process that is measured: the worker's, or what it runs for us."""
        return int(self.ready.get("pid", self._process.pid))

    async def start(self, settings: Answer) -> None:
        """Give it its settings and wait until it is up. Raises WorkerError."""
        self.ready = await self._exchange("start", settings, START_TIMEOUT)

    async def ask(self, command: str, timeout: float, **arguments: object) -> Answer:
        """Have it do something. Raises WorkerError, also after `timeout` seconds; the worker is of no use then."""
        return await self._exchange(command, {"do": command, **arguments}, timeout)

    async def _exchange(self, what: str, request: Answer, timeout: float) -> Answer:
        assert self._process.stdin is not None
        with trio.move_on_after(timeout):
            try:
                await self._process.stdin.send_all(json.dumps(request).encode() + b"\n")
                answer: Answer = json.loads(await self._line())
            except trio.BrokenResourceError:
                raise WorkerError(f"{self.name} ended: {self._last_words()}") from None
            if "error" in answer:
                raise WorkerError(f"{self.name}, {what}: {answer['error']}")
            return answer
        raise WorkerError(f"{self.name}, {what}: no answer in {timeout:.0f} s")

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._pending:
            chunk = await self._process.stdout.receive_some()
            if not chunk:
                raise trio.BrokenResourceError
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _last_words(self) -> str:
        text = self._log.read_text(errors="replace").strip()
        return text[-LOG_CHARACTERS:] or "it said nothing"


@asynccontextmanager
async def open_worker(name: str, command: Sequence[str], settings: Answer, folder: Path) -> AsyncGenerator[Worker]:
    """Run a worker for as long as the block lasts. Raises WorkerError when it does not come up.

    Args:
        name: for people, and of its log in `folder`.
        command: what runs it.
        settings: what it is told first.
    """
    log = folder / f"{name.replace(' ', '-')}.log"
    with log.open("wb") as stderr:
        process = await trio.lowlevel.open_process(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=ROOT,
            env=environment(),
            start_new_session=True,  # Ctrl-C is for us, and we end it
        )
    worker = Worker(name, process, log)
    try:
        await worker.start(settings)
        yield worker
    finally:
        with trio.CancelScope(shield=True):
            await _end(process)


def environment() -> dict[str, str]:
    """Ours, without a proxy: everything stays on loopback."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


async def _end(process: trio.Process) -> None:
    """It ends by itself when its input does; one that does not is killed."""
    try:
        assert process.stdin is not None
        await process.stdin.aclose()
        with trio.move_on_after(STOP_TIMEOUT):
            await process.wait()
    finally:
        process.kill()
        await process.wait()


def cpu_seconds(pid: int) -> float:
    """The CPU time that all threads of a process have used, to the nanosecond (clock_getcpuclockid)."""
    return time.clock_gettime(~pid << 3 | 2)


def resident_bytes(pid: int) -> int:
    """The memory that a process has now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
