"""`agentmesh demo`."""

import os
import time
from functools import partial

import click
import trio
from rich.console import Console

from agentmesh.cli.params import logging_options
from agentmesh.cli.program import run_program
from agentmesh.demo.story import run_demo

MIB = 1024 * 1024


@click.command("demo")
@click.option(
    "--file-mib", type=click.IntRange(1, 4096), default=256, show_default=True, help="Size of the file that is moved."
)
@logging_options
def command(file_mib: int) -> None:
    """Run a mesh of real processes on this machine: move a file through a router, call an MCP tool, check both.

    Exit status 0 means that every check held.
    """
    run_program(partial(_run, file_mib * MIB))


async def _run(file_bytes: int, stop: trio.Event) -> None:
    console = Console(width=None if os.environ.get("COLUMNS") or os.isatty(1) else 120)
    started = time.monotonic()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_on_signal, stop, nursery.cancel_scope)
        outcome = await run_demo(console, file_bytes)
        console.print(f"[bold green]{outcome.line()}[/] [dim]({time.monotonic() - started:.0f} s)[/]", soft_wrap=True)
        nursery.cancel_scope.cancel()
        return
    raise click.exceptions.Exit(130)


async def _stop_on_signal(stop: trio.Event, scope: trio.CancelScope) -> None:
    await stop.wait()
    scope.cancel()
