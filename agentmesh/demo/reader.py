"""The member that downloads: `python -m agentmesh.demo.reader … URL`. Attached over TCP first, then over WebSocket."""

import hashlib
from functools import partial
from pathlib import Path

import click
import trio

from agentmesh.abc import Transport
from agentmesh.cli.program import run_program
from agentmesh.demo.member import config_of, member_options, say_attached, say_circuit, waiting_for_cues
from agentmesh.demo.reports import Downloaded, Progressed, send_report
from agentmesh.node import Node, NodeConfig, run_node
from agentmesh.services import peer_of_host
from agentmesh.transports.tcp import TcpTransport
from agentmesh.transports.websocket import WebSocketTransport

REPORT_INTERVAL = 0.1  # seconds between two reports of a download's progress
HTTP_TIMEOUT = 30.0
TRANSPORTS: dict[str, type[Transport]] = {"tcp": TcpTransport, "ws": WebSocketTransport}


@click.command()
@member_options
@click.argument("url")
def main(control_plane: str, token: str, state: Path, url: str) -> None:
    """Download URL, once attached over TCP and once over WebSocket, each at a cue."""
    run_program(partial(_read, config_of(control_plane, token, state), url))


async def _read(config: NodeConfig, url: str, stop: trio.Event) -> None:
    async with waiting_for_cues(stop) as cue:
        for name, transport in TRANSPORTS.items():
            async with run_node(config, transports=[transport()]) as node:
                await say_attached(node, name)
                await cue()
                await _download(node, url, name)
                await cue()


async def _download(node: Node, url: str, transport: str) -> None:
    digest, received = hashlib.sha256(), 0
    started = next_report = trio.current_time()
    async with node.http_client(timeout=HTTP_TIMEOUT) as client, client.stream("GET", url) as response:
        response.raise_for_status()
        say_circuit(node, peer_of_host(response.url.host))
        total = int(response.headers["content-length"])
        async for chunk in response.aiter_raw():
            digest.update(chunk)
            received += len(chunk)
            if (now := trio.current_time()) >= next_report:
                next_report = now + REPORT_INTERVAL
                send_report(Progressed(received, total, now - started))
    send_report(Downloaded(transport, received, trio.current_time() - started, digest.hexdigest()))


if __name__ == "__main__":
    main(prog_name="reader")
