"""The demo's plot: a mesh comes up, a file crosses it over TCP and over WebSocket, a tool answers, all is checked."""

import hashlib
import os
import socket
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import attrs
import httpx
import trio
from rich.console import Console

from agentmesh.control_plane.client import open_client
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.server import open_plane
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER
from agentmesh.demo.processes import Program, running
from agentmesh.demo.reports import Attached, Downloaded, Progressed, Report, ToolAnswered, parse_report
from agentmesh.demo.view import View
from agentmesh.errors import MeshError
from agentmesh.identity import Identity
from agentmesh.services import host_name
from agentmesh.types import PeerId

CLI, MEMBERS = "agentmesh.cli", "agentmesh.demo.members"
FILE = "archive.bin"
PIECE_BYTES = 1024 * 1024
START_TIMEOUT = 30.0  # seconds for a process to be up
POLL_INTERVAL = 0.05
ROUTERS = ("router-1", "router-2")


R = TypeVar("R", bound=Report)


class CheckFailedError(MeshError):
    """Something that the demo promises did not hold."""


@attrs.frozen
class Outcome:
    """What was measured; every check has held."""

    downloads: tuple[Downloaded, ...]
    tool: ToolAnswered

    def line(self) -> str:
        """The figures, on one line."""
        moved = ", ".join(
            f"{one.bytes / 2**20:.0f} MiB over {one.transport} at {one.bytes / one.seconds / 1e6:.0f} MB/s"
            for one in self.downloads
        )
        return f"All checks held: {moved}; SHA-256 equal; MCP tool answered in {self.tool.seconds * 1000:.0f} ms."


@attrs.frozen
class Stage:
    """Where the demo runs: a folder of its own, a console, what is running."""

    folder: Path
    view: View
    stack: AsyncExitStack

    async def start(self, name: str, what: str, module: str, *arguments: str) -> Program:
        """Start a program; it ends with the stage."""
        program = await self.stack.enter_async_context(running(name, module, arguments, self.folder))
        self.view.add(name, what, program.pid)
        return program

    def member(self, url: str, name: str) -> list[str]:
        """The arguments that every member takes."""
        token, state = self.folder / "node-token", self.folder / name
        return ["--control-plane", url, "--token", str(token), "--state", str(state), "--log-level", "warning"]


async def run_demo(console: Console, file_bytes: int) -> Outcome:
    """Run the demo and check it.

    Args:
        console: where it is shown.
        file_bytes: how large a file crosses the mesh.
    Raises:
        ProcessFailedError: a process ended that should not have.
        CheckFailedError: bytes or answers differ.
        TooSlowError: something was not up in time.
    Cancellation: safe; no process is left.
    """
    view = View(console)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentmesh-demo-")))
        stack.enter_context(view.live)
        stage = Stage(folder, view, stack)
        files = folder / "files"
        files.mkdir()
        digest = await trio.to_thread.run_sync(_write_file, files / FILE, file_bytes)
        url = await _start_mesh(stage)
        provider = await _start_provider(stage, url, files)
        return await _use(stage, url, provider, digest, file_bytes)


def _write_file(path: Path, size: int) -> str:
    """A file of random bytes. Returns its SHA-256."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for start in range(0, size, PIECE_BYTES):
            piece = os.urandom(min(PIECE_BYTES, size - start))
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


async def _start_mesh(stage: Stage) -> str:
    """A control plane and two routers. Returns the control plane's URL."""
    database = stage.folder / "control-plane.db"
    async with open_plane(Config(db_dsn=str(database))) as plane:
        for role, name in ((ROLE_ROUTER, "router-token"), (ROLE_NODE, "node-token")):
            (stage.folder / name).touch(mode=0o600)
            (stage.folder / name).write_text(await plane.create_token(role, max_usages=10))
    address = f"127.0.0.1:{_free_port()}"
    url = f"http://{address}"
    control_plane = await stage.start(
        "control-plane", "enrolls, lists routers", CLI, "control-plane", "--bind-address", address,
        "--db-dsn", str(database), "--auto-approve-enrollment", "--log-level", "warning",
    )  # fmt: skip
    await _wait_healthy(control_plane, url)
    stage.view.up("control-plane")
    for name in ROUTERS:
        await stage.start(
            name, "relays what it cannot read", CLI, "router", "--control-plane", url,
            "--bootstrap-token-path", str(stage.folder / "router-token"), "--data-dir", str(stage.folder / name),
            "--listen", "/ip4/127.0.0.1/tcp/0", "--listen", "/ip4/127.0.0.1/tcp/0/ws", "--log-level", "warning",
        )  # fmt: skip
    await _wait_routers(stage, url)
    return url


async def _wait_healthy(control_plane: Program, url: str) -> None:
    with trio.fail_after(START_TIMEOUT):
        async with httpx.AsyncClient() as client:
            while control_plane.returncode is None:
                try:
                    if (await client.get(f"{url}/readyz")).is_success:
                        return
                except httpx.TransportError:
                    await trio.sleep(POLL_INTERVAL)
    raise control_plane.failure("before it was ready")


async def _wait_routers(stage: Stage, url: str) -> None:
    """Until the control plane lists both."""
    peers = {str(Identity.load(stage.folder / name / "identity.key").peer): name async for name in _with_keys(stage)}
    with trio.fail_after(START_TIMEOUT):
        async with open_client(url, Identity.generate()) as client:
            while len(listed := (await client.info()).routers) < len(ROUTERS):
                await trio.sleep(POLL_INTERVAL)
    for record in listed:
        stage.view.up(peers[str(record.peer)], str(record.peer))


async def _with_keys(stage: Stage) -> AsyncIterator[str]:
    """The routers, as each has made its key."""
    with trio.fail_after(START_TIMEOUT):
        for name in ROUTERS:
            while not (stage.folder / name / "identity.key").exists():
                await trio.sleep(POLL_INTERVAL)
            yield name


async def _start_provider(stage: Stage, url: str, files: Path) -> PeerId:
    arguments = [*stage.member(url, "provider"), "provider", str(files)]
    program = await stage.start("provider", "serves files and MCP tools", MEMBERS, *arguments)
    async with _reports(stage, program) as reports:
        attached = await _next(reports, Attached)
    return PeerId.parse(attached.peer)


async def _use(stage: Stage, url: str, provider: PeerId, digest: str, size: int) -> Outcome:
    """The other two members do what agents do; what they report is checked."""
    host = f"http://{host_name(provider)}"
    reader = await stage.start(
        "reader", "downloads a file", MEMBERS, *stage.member(url, "reader"), "reader", f"{host}/http/files/{FILE}"
    )
    downloads: list[Downloaded] = []
    async with _reports(stage, reader) as reports:
        async for report in reports:
            if isinstance(report, Downloaded):
                _check(report.sha256 == digest and report.bytes == size, f"the file came whole over {report.transport}")
                downloads.append(report)
    _check([one.transport for one in downloads] == ["tcp", "ws"], "the file came over TCP and over WebSocket")
    stage.view.state("reader", "done")
    agent = await stage.start(
        "agent", "calls an MCP tool", MEMBERS, *stage.member(url, "agent"), "agent", f"{host}/mcp/files/mcp", FILE
    )
    async with _reports(stage, agent) as reports:
        tool = await _next(reports, ToolAnswered)
    _check(tool.answer == digest, "the tool's answer is the file's SHA-256")
    stage.view.state("agent", "done")
    return Outcome(tuple(downloads), tool)


@asynccontextmanager
async def _reports(stage: Stage, program: Program) -> AsyncIterator[AsyncGenerator[Report]]:
    """What a member reports, shown as it comes."""

    async def shown() -> AsyncGenerator[Report]:
        transport = ""
        async for line in program.lines():
            report = parse_report(line)
            if isinstance(report, Attached):
                transport = report.transport
                stage.view.up(program.name, report.peer, report.routers, f"up, over {transport}")
            elif isinstance(report, Progressed):
                stage.view.progressed(f"{program.name} over {transport}", report.bytes, report.total)
            yield report
        if await program.wait_ended():
            raise program.failure("before it was done")

    reports = shown()
    try:
        yield reports
    finally:
        await reports.aclose()


async def _next(reports: AsyncIterator[Report], kind: type[R]) -> R:
    async for report in reports:
        if isinstance(report, kind):
            return report
    raise CheckFailedError(f"did not hold: a member reports {kind.__name__}")


def _check(held: bool, promise: str) -> None:
    if not held:
        raise CheckFailedError(f"did not hold: {promise}")


def _free_port() -> int:
    """A port of loopback that is free now: the control plane needs one that is known before it starts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
