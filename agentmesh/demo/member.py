"""What the demo's three members share: how they are set up, what they say, and how they wait for their cue.

A cue is a line on standard input. The demo gives it; when the demo is gone the input ends, and so does the member.
"""

import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
import trio

from agentmesh.cli.params import logging_options, secret_file
from agentmesh.demo.reports import Attached, CircuitOpened, send_report
from agentmesh.errors import NotConnectedError
from agentmesh.membership import Enrollment
from agentmesh.node import Node, NodeConfig
from agentmesh.runtime.nursery import open_background
from agentmesh.types import PeerId

ATTACH_WAIT = 15.0  # seconds for the second router, once the first is held
ATTACH_POLL = 0.02

F = TypeVar("F", bound=Callable[..., Any])


def member_options(command: F) -> F:
    """Give a command --control-plane, --token, --state and --log-level; the first three make a `config_of`."""
    for option in (
        logging_options,
        click.option("--state", required=True, type=click.Path(path_type=Path), help="The member's folder."),
        click.option("--token", required=True, type=secret_file, help="A file with a bootstrap token."),
        click.option("--control-plane", required=True, help="The control plane's URL."),
    ):
        command = option(command)
    return command


def config_of(control_plane: str, token: str, state: Path) -> NodeConfig:
    return NodeConfig(enrollment=Enrollment(control_plane=control_plane, token=token), state_dir=state)


async def say_attached(node: Node, transport: str) -> None:
    """Report the routers that are held, once they are as many as wanted or no more have come for a while.

    Raises:
        NotConnectedError: there is none.
    """
    wanted = min(2, len(node.attachments.catalogue.listed))
    with trio.move_on_after(ATTACH_WAIT):
        while len(node.routers) < wanted:  # noqa: ASYNC110 - a member of the demo may look as people would
            await trio.sleep(ATTACH_POLL)
    if not node.routers:
        raise NotConnectedError("attached to no router")
    send_report(Attached(str(node.peer), [str(router) for router in node.routers], transport))


def say_circuit(node: Node, to: PeerId) -> None:
    """Report which router relays to a peer, by the address of the session that there is."""
    session = node.host.session(to)
    circuit = session.address.circuit if session and session.address else None
    router = circuit[0].peer if circuit else None
    send_report(CircuitOpened(str(router or ""), str(to)))


@asynccontextmanager
async def waiting_for_cues(stop: trio.Event) -> AsyncGenerator[Callable[[], Awaitable[None]]]:
    """`async with waiting_for_cues(stop) as cue:` — `await cue()` returns when the demo gives one.

    The block is cancelled when `stop` is set, and when standard input ends.
    """
    send, receive = trio.open_memory_channel[None](0)
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin, open_background() as nursery:
        nursery.start_soon(_read_cues, stdin, send, stop)
        nursery.start_soon(_cancel_at, stop, nursery.cancel_scope)
        yield receive.receive


async def _read_cues(stdin: trio.abc.ReceiveStream, send: trio.MemorySendChannel[None], stop: trio.Event) -> None:
    async for data in stdin:
        for _ in range(data.count(b"\n")):
            await send.send(None)
    stop.set()


async def _cancel_at(stop: trio.Event, scope: trio.CancelScope) -> None:
    await stop.wait()
    scope.cancel()
