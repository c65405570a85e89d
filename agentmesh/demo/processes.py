"""Programs of this package as processes: started, heard, and none left behind."""

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Never

import attrs
import trio

from agentmesh.errors import MeshError
from agentmesh.runtime.nursery import open_background

STOP_TIMEOUT = 5.0  # seconds a process has to end after SIGTERM
MAX_LOG_CHARACTERS = 300  # of a log that go into an error's text
MAX_LOG_BYTES = 8192
FRAME = " \t|+-"  # what Python draws around the tracebacks of exception groups


class ProcessFailedError(MeshError):
    """A process ended that should not have. The text has the end of what it logged."""


@attrs.frozen
class Program:
    """A running program.

    Attributes:
        name: what the demo calls it.
    """

    name: str
    _process: trio.Process
    _log: Path
    _pending: bytearray = attrs.field(factory=bytearray, init=False)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def next_line(self) -> str:
        """What it prints next on standard output.

        Raises:
            ProcessFailedError: it ended.
        """
        assert self._process.stdout is not None
        while b"\n" not in self._pending:
            data = await self._process.stdout.receive_some()
            if not data:
                await self.watch()
            self._pending.extend(data)
        line, _, rest = self._pending.partition(b"\n")
        self._pending[:] = rest
        return line.decode()

    async def cue(self) -> None:
        """Give it a line on standard input.

        Raises:
            ProcessFailedError: it ended.
        """
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send_all(b"\n")
        except trio.BrokenResourceError:
            await self.watch()

    async def watch(self) -> Never:
        """Wait until it ends, which it should not.

        Raises:
            ProcessFailedError: it ended.
        """
        status = await self._process.wait()
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise ProcessFailedError(f"{self.name} {how}, and logged at the end: {log_end(self._log)}")

    async def end(self) -> None:
        """Have it end: by SIGTERM, or by SIGKILL STOP_TIMEOUT seconds later."""
        if self._process.returncode is None:
            self._process.terminate()
            with trio.move_on_after(STOP_TIMEOUT):
                await self._process.wait()
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                await pipe.aclose()


@attrs.frozen
class Stage:
    """Where programs run: a folder for their logs, and a watch that none of them ends early."""

    folder: Path
    _ended: Callable[[str], None]
    _nursery: trio.Nursery
    _programs: list[Program]

    async def start(self, name: str, module: str, arguments: Sequence[str]) -> Program:
        """`python -m module arguments…`, until the stage closes; its log goes to the folder."""
        log = self.folder / f"{name}.log"
        with log.open("wb") as log_file:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log_file,
                start_new_session=True,  # Ctrl-C in the terminal reaches it through us alone
                env=_environment(),
            )
        program = Program(name, process, log)
        self._programs.append(program)  # no checkpoint since it was started: whatever comes now, it is ended
        self._nursery.start_soon(self._watch, program)
        return program

    async def _watch(self, program: Program) -> None:
        try:
            await program.watch()
        except ProcessFailedError:
            self._ended(program.name)
            raise


@asynccontextmanager
async def open_stage(folder: Path, ended: Callable[[str], None]) -> AsyncGenerator[Stage]:
    """However the block ends, every program that it started has ended when it is left. They are ended all at once.

    Args:
        folder: where logs go.
        ended: told the name of a program that ends by itself.
    Raises:
        ProcessFailedError: in a group: a program ended by itself.
    """
    programs: list[Program] = []
    try:
        async with open_background() as nursery:
            yield Stage(folder, ended, nursery, programs)
    finally:
        with trio.CancelScope(shield=True):  # bounded: each has STOP_TIMEOUT
            async with trio.open_nursery() as ending:
                for program in programs:
                    ending.start_soon(program.end)


def log_end(log: Path) -> str:
    """The last line of a log that says something."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - MAX_LOG_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    said = [line.strip(FRAME) for line in lines if line.strip(FRAME)]
    return said[-1][-MAX_LOG_CHARACTERS:] if said else "nothing"


def _environment() -> dict[str, str]:
    """Ours, without what would set up an agentmesh of the user's own."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("AGENTMESH_")}
    ours.pop("LOG_FORMAT", None)
    return {**ours, "PYTHONUNBUFFERED": "1"}
