"""py-libp2p hosts as subprocesses: `async with open_peer() as peer:` and `await peer.do("ping", peer=…)`."""

import json
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from agentmesh.types import Address, PeerId

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = ROOT / ".venv-peers" / "bin" / "python"
PROGRAM = ROOT / "tests" / "interop" / "peers" / "py_libp2p_peer.py"
ANYWHERE = "/ip4/127.0.0.1/tcp/0"
ANSWER_TIMEOUT = 60.0  # seconds, of real time: this peer has a clock of its own
EXIT_TIMEOUT = 5.0  # seconds it gets to end by itself

Answer = dict[str, Any]


class PyPeer:
    """A py-libp2p host, told what to do one command at a time.

    Attributes:
        peer: its ID.
        address: where it listens, ending in its ID.
    """

    peer: PeerId
    address: Address

    def __init__(self, process: trio.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._received = b""
        self._commands = 0

    async def start(self) -> None:
        ready = await self._read_answer()
        self.peer = PeerId.parse(ready["peer"])
        self.address = Address.parse(ready["addresses"][0])

    async def ask(self, do: str, **arguments: object) -> Answer:
        """Send a command; its answer, whether it went well or not."""
        self._commands += 1
        command = {"id": self._commands, "do": do, **arguments}
        await self._stdin.send_all(json.dumps(command, default=str).encode() + b"\n")
        answer = await self._read_answer()
        assert answer["id"] == self._commands
        return answer

    async def do(self, do: str, **arguments: object) -> Answer:
        """Send a command that has to go well."""
        answer = await self.ask(do, **arguments)
        assert answer["ok"], f"py-libp2p could not {do}: {answer['error']}"
        return answer

    async def _read_answer(self) -> Answer:
        with trio.fail_after(ANSWER_TIMEOUT):
            while b"\n" not in self._received:
                data = await self._stdout.receive_some()
                assert data, "the py-libp2p peer ended; what it said is on standard error"
                self._received += data
        line, _, self._received = self._received.partition(b"\n")
        answer: Answer = json.loads(line)
        return answer


@asynccontextmanager
async def open_peer(*arguments: str) -> AsyncGenerator[PyPeer]:
    """Run a py-libp2p host for the length of the block.

    Args:
        arguments: of the program, besides where to listen: "--relay", "--security", "noise"…
    """
    assert PYTHON.exists(), f"{PYTHON} is missing: `make setup` makes it"
    command = [str(PYTHON), str(PROGRAM), "--listen", ANYWHERE, *arguments]
    run = partial(trio.run_process, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, check=False)
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(run)
        peer = PyPeer(process)
        try:
            await peer.start()
            yield peer
        finally:
            assert process.stdin is not None
            with trio.move_on_after(EXIT_TIMEOUT) as scope:
                scope.shield = True
                await process.stdin.aclose()
                await process.wait()
            nursery.cancel_scope.cancel()
