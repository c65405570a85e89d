"""Programs as processes: started, waited for, and looked for when they should be gone.

Every process of a test carries a mark in its environment, and so does whatever it starts itself.
"""

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

MARK = "MESH_TEST_MARK"  # agentmesh's own variables do not reach what the demo starts
PATIENCE = 30.0  # seconds for a process to say something; far more than it takes, on a machine that is busy
STOP_PATIENCE = 25.0  # to end when it is told to, or has nothing left to do; on a busy machine, too
LOOK_INTERVAL = 0.05

AGENTMESH = ("-m", "agentmesh.cli")


@attrs.frozen
class Running:
    """A process, and the files that its output goes to."""

    process: trio.Process
    out: Path
    err: Path

    async def said(self, pattern: str, *, times: int = 1) -> re.Match[str]:
        """Wait until `pattern` is in its output, so many times; the last of them."""
        with trio.fail_after(PATIENCE):
            while len(found := list(re.finditer(pattern, self.text, re.MULTILINE))) < times:
                assert self.process.returncode is None, f"ended with {self.process.returncode}:\n{self.text}"
                await trio.sleep(LOOK_INTERVAL)
        return found[times - 1]

    async def mapped(self, part: str) -> None:
        """Wait until it has loaded a library whose path has `part` in it."""
        with trio.fail_after(PATIENCE):
            maps = Path(f"/proc/{self.process.pid}/maps")
            while part.encode() not in _read(maps):  # noqa: ASYNC110 - only looking tells
                await trio.sleep(LOOK_INTERVAL)

    @property
    def text(self) -> str:
        return self.out.read_text() + self.err.read_text()

    async def ended(self) -> int:
        """Its exit status."""
        with trio.fail_after(STOP_PATIENCE):
            return await self.process.wait()

    async def told(self, number: signal.Signals) -> int:
        """Its exit status after a signal."""
        self.process.send_signal(number)
        return await self.ended()


@attrs.define
class Machine:
    """Where the processes of a test run."""

    folder: Path
    mark: str = attrs.field(factory=lambda: uuid.uuid4().hex)
    count: int = 0

    @asynccontextmanager
    async def running(self, *arguments: str, module: tuple[str, ...] = AGENTMESH) -> AsyncGenerator[Running]:
        """`agentmesh arguments…`; killed at the end of the block if it is still there."""
        self.count += 1
        out, err = (self.folder / f"{self.count}.{kind}" for kind in ("out", "err"))
        with out.open("wb") as out_file, err.open("wb") as err_file:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-W", "error", *module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out_file,
                stderr=err_file,
                cwd=self.folder,
                env={**os.environ, MARK: self.mark, "TMPDIR": str(self.folder), "PYTHONUNBUFFERED": "1"},
            )
        try:
            yield Running(process, out, err)
        finally:
            if process.returncode is None:
                process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()

    def left(self) -> list[str]:
        """The command lines of processes that carry the mark."""
        wanted = f"{MARK}={self.mark}".encode()
        return [_command(folder) for folder in Path("/proc").glob("[0-9]*") if wanted in _read(folder / "environ")]

    async def none_left(self) -> None:
        """Wait until no process carries the mark."""
        with trio.move_on_after(STOP_PATIENCE):
            while self.left():  # noqa: ASYNC110 - nobody tells when a process is gone
                await trio.sleep(LOOK_INTERVAL)
        assert self.left() == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # gone since it was listed, or another user's
        return b""


def _command(folder: Path) -> str:
    return _read(folder / "cmdline").replace(b"\0", b" ").decode()
