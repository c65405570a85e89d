"""The demo's plot: a mesh comes up, a file crosses it over TCP and over WebSocket, a tool answers, all is checked."""

import attrs

from agentmesh.demo.mesh import (
    AGENT,
    PROVIDER,
    READER,
    ROUTERS,
    CheckFailedError,
    Mesh,
    check,
    next_report,
    raise_mesh,
    until_attached,
)
from agentmesh.demo.processes import Program, Stage
from agentmesh.demo.reports import CircuitOpened, Downloaded, Progressed, ToolAnswered, parse_report
from agentmesh.demo.scene import TRANSPORT_NAMES, Path
from agentmesh.demo.view import View

TOOL = "tool"
ACTS = (
    ("tcp", f"The {READER} downloads a file from the {PROVIDER}, attached over TCP"),
    ("ws", f"The {READER} downloads it again, attached over WebSocket"),
    (TOOL, f"The {AGENT} asks the {PROVIDER}'s MCP tool for the file's SHA-256"),
)


@attrs.frozen
class Outcome:
    """What was measured; every check has held."""

    downloads: tuple[Downloaded, ...]
    tool: ToolAnswered

    def line(self) -> str:
        """The figures, on one line."""
        size = self.downloads[0].bytes / 2**20
        rates = ", ".join(
            f"{one.bytes / one.seconds / 1e6:.0f} MB/s over {TRANSPORT_NAMES[one.transport]}" for one in self.downloads
        )
        return f"{size:.0f} MiB at {rates}; SHA-256 equal; MCP tool answered in {_milliseconds(self.tool)}"


async def play(stage: Stage, view: View, file_bytes: int) -> Outcome:
    """Raise the mesh, use it, check what comes of it.

    Args:
        stage: where the programs run.
        view: what is told of it.
        file_bytes: how large a file crosses the mesh.
    Raises:
        CheckFailedError: bytes or answers differ, or something was not up in time.
        ProcessFailedError: a process ended.
    """
    mesh = await raise_mesh(stage, view, file_bytes)
    over_tcp = await _download(mesh, view, "tcp", file_bytes)
    await mesh.members[READER].cue()  # it leaves, and comes back over WebSocket
    await until_attached(mesh.members[READER], view, mesh.names, "ws")
    over_websocket = await _download(mesh, view, "ws", file_bytes)
    return Outcome((over_tcp, over_websocket), await _ask_tool(mesh, view))


async def _download(mesh: Mesh, view: View, transport: str, size: int) -> Downloaded:
    reader = mesh.members[READER]
    view.began(transport)
    await reader.cue()
    _show_circuit(await next_report(reader, CircuitOpened), reader, mesh, view)
    while isinstance(report := parse_report(await reader.next_line()), Progressed):
        view.progressed(transport, report.bytes, report.total, report.seconds)
    if not isinstance(report, Downloaded):
        raise CheckFailedError(f"did not hold: a download ends whole, not with {report}")
    view.progressed(transport, report.bytes, size, report.seconds)
    check(report.transport == transport, f"the file came over {transport}")
    check(report.bytes == size and report.sha256 == mesh.digest, f"the file came whole over {transport}")
    view.held(transport, "SHA-256 equal")
    return report


async def _ask_tool(mesh: Mesh, view: View) -> ToolAnswered:
    agent = mesh.members[AGENT]
    view.began(TOOL)
    await agent.cue()
    _show_circuit(await next_report(agent, CircuitOpened), agent, mesh, view)
    report = await next_report(agent, ToolAnswered)
    check(report.answer == mesh.digest, "the tool's answer is the file's SHA-256")
    view.held(TOOL, f"answered in {_milliseconds(report)}: the same")
    return report


def _show_circuit(opened: CircuitOpened, caller: Program, mesh: Mesh, view: View) -> None:
    """Members listen nowhere, so whatever reaches one comes through a router."""
    router, callee = mesh.names.get(opened.router, ""), mesh.names[opened.to]
    check(router in ROUTERS and callee == PROVIDER, f"{caller.name} reaches the {PROVIDER} through a router")
    view.relayed(Path(caller.name, router, callee))


def _milliseconds(tool: ToolAnswered) -> str:
    return f"{tool.seconds * 1000:.0f} ms"
