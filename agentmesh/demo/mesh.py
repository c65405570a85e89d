"""Raising the demo's mesh: six processes, up to the moment when all three members hold both routers."""

import socket
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import attrs
import httpx
import trio

from agentmesh.control_plane.client import open_client
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.control_plane.server import open_plane
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER
from agentmesh.demo.files import sha256_of, write_random
from agentmesh.demo.processes import Program, Stage
from agentmesh.demo.reports import Attached, Report, parse_report
from agentmesh.demo.view import View
from agentmesh.errors import MeshError
from agentmesh.identity import Identity
from agentmesh.membership import StateDir
from agentmesh.services import host_name

CONTROL_PLANE = "control-plane"
ROUTERS = ("router-1", "router-2")
PROVIDER, READER, AGENT = "provider", "reader", "agent"
PLAYERS = (
    (CONTROL_PLANE, "enrolls members, lists routers"),
    *((name, "relays what it cannot read") for name in ROUTERS),
    (PROVIDER, "serves files and an MCP tool"),
    (READER, "downloads a file, twice"),
    (AGENT, "calls the MCP tool"),
)

FILE = "archive.bin"
START_TIMEOUT = 30.0  # seconds for a process to be up
POLL_INTERVAL = 0.05

R = TypeVar("R", bound=Report)


class CheckFailedError(MeshError):
    """Something that the demo promises did not hold."""


@attrs.frozen
class Mesh:
    """What is up, and what is known of it.

    Attributes:
        names: of the peers.
        digest: the file's SHA-256.
        members: by name.
    """

    names: Mapping[str, str]
    digest: str
    members: Mapping[str, Program]


async def raise_mesh(stage: Stage, view: View, file_bytes: int) -> Mesh:
    """Start every process.

    Args:
        file_bytes: the size of the file that the provider gets.
    Raises:
        CheckFailedError: something was not up in time.
        ProcessFailedError: a process ended.
    """
    folder = stage.folder
    files = folder / "files"
    files.mkdir()
    identities = {name: StateDir(folder / name).identity() for name in (*ROUTERS, PROVIDER, READER, AGENT)}
    names = {str(identity.peer): name for name, identity in identities.items()}
    provider = f"http://{host_name(identities[PROVIDER].peer)}"
    arguments = {
        PROVIDER: (str(files),),
        READER: (f"{provider}/http/files/{FILE}",),
        AGENT: (f"{provider}/mcp/files/mcp", FILE),
    }
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_random, files / FILE, file_bytes)
        url = await _start_control_plane(stage, view)
        await _start_routers(stage, view, url, names)
        members = {name: await _start_member(stage, view, url, name, arguments[name]) for name in arguments}
    async with trio.open_nursery() as nursery:
        for member in members.values():
            nursery.start_soon(until_attached, member, view, names, "tcp")
    return Mesh(names, await sha256_of(files / FILE), members)


async def until_attached(member: Program, view: View, names: Mapping[str, str], transport: str) -> None:
    """Wait until a member says that it is in the mesh.

    Raises:
        CheckFailedError: it did not in time, or it holds other routers than both, or over something else.
    """
    with in_time(member.name):
        report = await next_report(member, Attached)
    routers = sorted(names[router] for router in report.routers)
    said = (names[report.peer], routers, report.transport)
    check(
        said == (member.name, list(ROUTERS), transport), f"{member.name} is attached to both routers over {transport}"
    )
    view.attached(member.name, routers, transport)


async def next_report(member: Program, kind: type[R]) -> R:
    """What a member says next. Raises CheckFailedError when that is something else than it should say."""
    report = parse_report(await member.next_line())
    if not isinstance(report, kind):
        raise CheckFailedError(f"did not hold: {member.name} says {kind.__name__} next, not {report}")
    return report


def check(held: bool, promise: str) -> None:
    """Raises CheckFailedError unless the promise held."""
    if not held:
        raise CheckFailedError(f"did not hold: {promise}")


@contextmanager
def in_time(what: str) -> Generator[None]:
    """Raises CheckFailedError when the block takes longer than START_TIMEOUT."""
    try:
        with trio.fail_after(START_TIMEOUT):
            yield
    except trio.TooSlowError as exc:
        raise CheckFailedError(f"did not hold: {what} is up within {START_TIMEOUT:.0f} s") from exc


async def _start_control_plane(stage: Stage, view: View) -> str:
    """Returns its URL. Two invitations are in its database before it starts."""
    database = stage.folder / "control-plane.db"
    async with open_plane(Config(db_dsn=str(database), policy=OPEN_POLICY)) as plane:
        for role, name in ((ROLE_ROUTER, "router-token"), (ROLE_NODE, "node-token")):
            (stage.folder / name).touch(mode=0o600)
            (stage.folder / name).write_text(await plane.create_token(role, max_usages=10))
    address = f"127.0.0.1:{_free_port()}"
    arguments = [
        "control-plane", "--bind-address", address, "--db-dsn", str(database), "--auto-approve-enrollment",
        "--log-level", "warning",
    ]  # fmt: skip
    program = await stage.start(CONTROL_PLANE, "agentmesh.demo.child", arguments)
    view.started(CONTROL_PLANE, program.pid)
    with in_time(CONTROL_PLANE):
        async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False) as client:
            while not await _is_ready(client):  # noqa: ASYNC110 - only asking tells
                await trio.sleep(POLL_INTERVAL)
    view.up(CONTROL_PLANE)
    return f"http://{address}"


async def _is_ready(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/readyz")).is_success
    except httpx.TransportError:
        return False


async def _start_routers(stage: Stage, view: View, url: str, names: Mapping[str, str]) -> None:
    """Returns when the control plane lists both."""
    for name in ROUTERS:
        arguments = [
            "router", "--control-plane", url, "--bootstrap-token-path", str(stage.folder / "router-token"),
            "--data-dir", str(stage.folder / name), "--listen", "/ip4/127.0.0.1/tcp/0",
            "--listen", "/ip4/127.0.0.1/tcp/0/ws", "--log-level", "warning",
        ]  # fmt: skip
        program = await stage.start(name, "agentmesh.demo.child", arguments)
        view.started(name, program.pid)
    missing = set(ROUTERS)
    with in_time(" and ".join(ROUTERS)):
        async with open_client(url, Identity.generate()) as client:
            while missing:
                for name in missing & {names[str(record.peer)] for record in (await client.info()).routers}:
                    missing.remove(name)
                    view.up(name)
                await trio.sleep(POLL_INTERVAL)


async def _start_member(stage: Stage, view: View, url: str, name: str, arguments: Sequence[str]) -> Program:
    common = [
        "--control-plane", url, "--token", str(stage.folder / "node-token"), "--state", str(stage.folder / name),
        "--log-level", "warning",
    ]  # fmt: skip
    program = await stage.start(name, f"agentmesh.demo.{name}", [*common, *arguments])
    view.started(name, program.pid)
    return program


def _free_port() -> int:
    """A port of loopback that is free now: the control plane needs one that is known before it starts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
