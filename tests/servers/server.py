"""Servers that nobody here wrote, as subprocesses on loopback. `make setup` brings their programs."""

import os
import shutil
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

UNPACKED = Path(__file__).resolve().parent.parent.parent / ".venv-servers/root"
START_TIMEOUT = 10.0  # seconds of real time until it listens
POLL_INTERVAL = 0.01  # seconds
SYSTEM_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


def find_program(name: str) -> str:
    """The program out of Debian's packages; where there are none, that of the machine."""
    found = next(map(str, UNPACKED.glob(f"**/*bin/{name}")), None) or shutil.which(name, path=SYSTEM_PATH)
    assert found is not None, f"{name} is missing: `make setup` brings it"
    return found


def environment() -> dict[str, str]:
    """Ours, and where the programs find those libraries that the machine lacks."""
    libraries = [*UNPACKED.glob("lib/*-linux-gnu*"), *UNPACKED.glob("usr/lib/*-linux-gnu*")]
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries))}


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def run_server(command: Sequence[str | Path], port: int) -> AsyncGenerator[trio.Process]:
    """Run a server for the length of the block, which begins when it takes connections.

    What it prints is shown with a test that fails. At the end it gets SIGTERM, and SIGKILL if that does not help.

    Args:
        command: the program, found by `find_program`, and its arguments. It has to stay in the foreground.
        port: of 127.0.0.1, that it listens on.
    """
    program = find_program(str(command[0]))
    run = partial(trio.run_process, [program, *command[1:]], env=environment(), check=False)
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(run)
        with trio.fail_after(START_TIMEOUT):
            while not await _takes_connections(port):
                assert process.poll() is None, f"{program} ended; what it said is on standard error"
                await trio.sleep(POLL_INTERVAL)
        yield process
        nursery.cancel_scope.cancel()


async def _takes_connections(port: int) -> bool:
    try:
        async with await trio.open_tcp_stream("127.0.0.1", port):
            return True
    except OSError:
        return False
