"""`agentmesh demo`."""

import importlib.util
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import click
import trio
from rich.console import Console

from agentmesh.cli.params import logging_options
from agentmesh.cli.program import run_program
from agentmesh.demo.mesh import PLAYERS
from agentmesh.demo.processes import open_stage
from agentmesh.demo.story import ACTS, Outcome, play
from agentmesh.demo.view import View

MIB = 1024 * 1024
MCP_SDK = "mcp"
INTERRUPTED = 128 + signal.SIGINT


@click.command("demo")
@click.option(
    "--file-mib",
    type=click.IntRange(1, 4096),
    default=256,
    show_default=True,
    metavar="MIB",
    help="Size of the file that is moved.",
)
@logging_options
def command(file_mib: int) -> int:
    """Watch a mesh of six processes on this machine at work.

    A control plane, two routers and three members: one member downloads a file from another through a router, over TCP
    and over WebSocket, and a third calls an MCP tool. Exit status 0 means that every check held.
    """
    if importlib.util.find_spec(MCP_SDK) is None:
        raise click.ClickException("the demo calls an MCP tool, which takes the MCP SDK: pip install 'agentmesh[mcp]'")
    console = Console()
    view = View(console, console.is_interactive and sys.stdout.isatty(), time.monotonic, PLAYERS, ACTS)
    outcomes: list[Outcome] = []
    run_program(partial(_run, view, file_mib * MIB, outcomes))
    for outcome in outcomes:
        took = f"[dim]({view.elapsed:.0f} s)[/]"
        console.print(f"[bold green]All checks held:[/] {outcome.line()} {took}", highlight=False, soft_wrap=True)
        return 0
    console.print("Interrupted. Every process has ended.", soft_wrap=True)
    return INTERRUPTED


async def _run(view: View, file_bytes: int, outcomes: list[Outcome], stop: trio.Event) -> None:
    with ExitStack() as stack, trio.CancelScope() as playing:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentmesh-demo-")))
        stack.enter_context(view.shown())
        stack.callback(view.broke_off)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_at, stop, playing)
            nursery.start_soon(view.animate)
            async with open_stage(folder, view.ended) as stage:
                outcomes.append(await play(stage, view, file_bytes))
            nursery.cancel_scope.cancel()


async def _cancel_at(stop: trio.Event, scope: trio.CancelScope) -> None:
    """At SIGHUP too: who closes the terminal wants nothing left behind either."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_at_hangup, stop)
        await stop.wait()
        scope.cancel()


async def _stop_at_hangup(stop: trio.Event) -> None:
    with trio.open_signal_receiver(signal.SIGHUP) as signals:
        async for _ in signals:
            stop.set()
