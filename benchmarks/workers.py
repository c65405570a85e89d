"""Worker processes that take commands and answer them, a JSON object a line."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

Answer = dict[str, Any]
Command = Callable[..., Awaitable[Answer]]

CLOCK_TICKS = 100  # of /proc/<pid>/stat, a second


class Worker:
    """A worker as its boss sees it."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._pending = b""
        self.pid = process.pid

    async def ask(self, command: str, **arguments: Any) -> Answer:
        """Have it do something, and give its answer."""
        assert self._process.stdin is not None
        await self._process.stdin.send_all(json.dumps({"do": command, **arguments}).encode() + b"\n")
        answer: Answer = json.loads(await self._line())
        if "error" in answer:
            raise RuntimeError(f"{command}: {answer['error']}")
        return answer

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._pending:
            chunk = await self._process.stdout.receive_some()
            if not chunk:
                raise RuntimeError("a worker ended")
            self._pending += chunk
        line, self._pending = self._pending.split(b"\n", 1)
        return line

    def cpu_seconds(self) -> float:
        """User and system time it has used."""
        with open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS

    def resident_bytes(self) -> int:
        """Memory that is its own."""
        with open(f"/proc/{self.pid}/smaps_rollup") as file:
            lines = dict(line.split(":", 1) for line in file if line.startswith("Rss:"))
        return int(lines["Rss"].split()[0]) * 1024


@asynccontextmanager
async def open_worker(module: str, role: str) -> AsyncGenerator[Worker]:
    """`python -m module role`, for as long as the block lasts."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", module, role], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield Worker(process)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def serve_commands(commands: dict[str, Command]) -> None:
    """Be a worker: answer commands until standard input ends."""
    pending = b""
    stdin = trio.lowlevel.FdStream(0)
    async for chunk in stdin:
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            request = json.loads(line)
            answer = await commands[request.pop("do")](**request)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
