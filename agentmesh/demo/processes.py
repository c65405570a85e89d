"""Programs of this package as processes: started, heard, and none left behind."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from agentmesh.errors import MeshError

STOP_TIMEOUT = 5.0  # seconds a process has to end after SIGTERM


class ProcessFailedError(MeshError):
    """A process ended that should not have. The text has the end of what it logged."""


class Program:
    """A running program.

    Attributes:
        name: what the demo calls it.
        pid: its process ID.
    """

    def __init__(self, name: str, process: trio.Process, log: Path) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process
        self._log = log

    @property
    def returncode(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.returncode

    async def lines(self) -> AsyncIterator[str]:
        """What it prints on standard output, until it ends."""
        assert self._process.stdout is not None
        pending = b""
        async for chunk in self._process.stdout:
            *whole, pending = (pending + chunk).split(b"\n")
            for line in whole:
                yield line.decode()

    async def wait_ended(self) -> int:
        """Its exit status, once it has ended."""
        return await self._process.wait()

    def failure(self, doing: str) -> ProcessFailedError:
        """The error for a program that ended too early."""
        tail = " | ".join(self._log.read_text(errors="replace").splitlines()[-3:])
        return ProcessFailedError(f"{self.name} ended with status {self.returncode} {doing}: {tail or 'no log'}")


@asynccontextmanager
async def running(name: str, module: str, arguments: Sequence[str], folder: Path) -> AsyncIterator[Program]:
    """`python -m module arguments…` for as long as the block lasts; its log goes to `folder`.

    However the block ends, the process has ended when it is left: by SIGTERM, or SIGKILL five seconds later. It is in a
    session of its own, so that Ctrl-C in the terminal reaches it through us alone.
    """
    log = folder / f"{name}.log"
    with log.open("wb") as log_file:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log_file,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        yield Program(name, process, log)
    finally:
        with trio.CancelScope(shield=True):
            await _end(process)


async def _end(process: trio.Process) -> None:
    if process.returncode is None:
        process.terminate()
        with trio.move_on_after(STOP_TIMEOUT):
            await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()
    if process.stdout is not None:
        await process.stdout.aclose()
