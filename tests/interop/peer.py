"""Hosts that nobody here wrote, as subprocesses.

`async with open_peer(kind) as peer:` runs one, `await peer.do("ping", peer=…)` tells it what to do.
"""

import json
import os
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from agentmesh.types import Address, PeerId
from tests.interop.hosts import TCP, WEBSOCKET

ROOT = Path(__file__).resolve().parent.parent.parent
MADE = ROOT / ".venv-peers"
ANSWER_TIMEOUT = 100.0  # seconds of real time, for a hundred MiB on a busy machine; these have a clock of their own
EXIT_TIMEOUT = 5.0  # seconds a peer gets to end by itself

Answer = dict[str, Any]


@attrs.frozen
class Kind:
    """An implementation, and what it is spoken to over.

    Attributes:
        name: what its program calls itself to others, without the version.
        command: how to start it.
        made_by: the make target that sets it up.
        listen: the address that both sides listen on.
    """

    name: str
    command: tuple[str, ...]
    made_by: str = "setup"
    listen: str = TCP

    def __str__(self) -> str:
        return f"{self.name}-{'websocket' if self.listen == WEBSOCKET else 'tcp'}"

    def missing(self) -> list[str]:
        """What of the command is not there."""
        return [part for part in self.command if part.startswith("/") and not Path(part).exists()]

    def over_websocket(self) -> "Kind":
        return attrs.evolve(self, listen=WEBSOCKET)


PY = Kind("py-libp2p", (str(MADE / "bin/python"), str(ROOT / "tests/interop/peers/py_libp2p_peer.py")))
# A link beside node_modules, where node is to look for them.
JS = Kind("js-libp2p", (str(MADE / "node/bin/node"), "--preserve-symlinks-main", str(MADE / "js/js_libp2p_peer.mjs")))
GO = Kind("go-libp2p", (str(MADE / "go/go_libp2p_peer"),), made_by="interop")

# `make interop` asks for the one that not every machine can build.
ASKED_FOR = [GO] if os.environ.get("INTEROP") == "go" else [PY, JS]
KINDS = [kind for each in ASKED_FOR for kind in (each, each.over_websocket())]


class Peer:
    """A foreign host, told what to do one command at a time.

    Attributes:
        peer: its ID.
        address: where it listens, ending in its ID.
    """

    peer: PeerId
    address: Address

    def __init__(self, kind: Kind, process: trio.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._kind = kind
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
        assert answer["ok"], f"{self._kind} could not {do}: {answer['error']}"
        return answer

    async def _read_answer(self) -> Answer:
        with trio.fail_after(ANSWER_TIMEOUT):
            while b"\n" not in self._received:
                data = await self._stdout.receive_some()
                assert data, f"{self._kind} ended; what it said is on standard error"
                self._received += data
        line, _, self._received = self._received.partition(b"\n")
        answer: Answer = json.loads(line)
        return answer


@asynccontextmanager
async def open_peer(kind: Kind, *arguments: str) -> AsyncGenerator[Peer]:
    """Run a foreign host for the length of the block.

    Args:
        kind: which.
        arguments: of the program, besides where to listen: "--relay", "--security", "noise"…
    """
    assert not (missing := kind.missing()), f"{missing[0]} is missing: `make {kind.made_by}` makes it"
    command = [*kind.command, "--listen", kind.listen, *arguments]
    run = partial(trio.run_process, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, check=False)
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(run)
        peer = Peer(kind, process)
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
