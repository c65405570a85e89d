"""What a control plane bears: enrollments, reads of /info in a large mesh, verified credentials. On SQLite, PostgreSQL.

    python -m benchmarks.control_plane [--seconds 5] [--members 10000] [--routers 100] [--callers 32] [--json FILE]

The server and the caller are a process each on this machine, so they share its cores; the caller's requests are made
and signed beforehand. The PostgreSQL server is the one that the tests start, and it waits for the disk.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import repeat
from pathlib import Path

import attrs
import click
import httpx
import trio
from rich.console import Console
from rich.table import Table
from sqlalchemy import Connection, insert

from agentmesh.control_plane import rows
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.database import open_database
from agentmesh.control_plane.generations import Topic, changed
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.control_plane.records import Issue, Lease
from agentmesh.control_plane.schema import nodes, routers
from agentmesh.control_plane.server import open_control_plane
from agentmesh.credentials import ROLE_NODE, ROLE_ROUTER, SigningKey, TrustedKeys, mint, verify
from agentmesh.identity import Identity, challenge_text
from agentmesh.types import Address, PeerId
from agentmesh.wire.messages.mesh.v1 import BootstrapEnrollRequest, BootstrapEnrollResponse, EnrollmentStatus
from tests.servers.postgres import run_postgres

MODULE = "benchmarks.control_plane"
DAY = 86400.0
UNLIMITED = 1e9  # requests a second
MAX_ENROLLMENTS = 1_000_000
PREPARED_PER_SECOND = 1200  # enrollments; more than any database takes


@attrs.frozen
class Result:
    """What one database bore. Rates are per second, times milliseconds, memory MiB; CPU is the control plane's."""

    database: str
    enrollments: float
    enrollment_median: float
    enrollment_worst: float
    enrollment_cpu: float
    info_reads: float
    info_cpu: float
    info_bytes: int
    memory_at_start: float
    memory: float


# ── the server's process ──


async def serve(dsn: str) -> None:
    """A control plane without a rate limit: prints its URL and a bootstrap token, serves until its input ends."""
    config = Config(
        bind_address="127.0.0.1:0",
        db_dsn=dsn,
        auto_approve_enrollment=True,
        enroll_rate=UNLIMITED,
        enroll_burst=round(UNLIMITED),
        policy=OPEN_POLICY,
        mesh_reconnect_interval=DAY,  # there are no routers to reach
    )
    async with open_control_plane(config) as plane:
        token = await plane.create_token("node", max_usages=MAX_ENROLLMENTS, ttl=DAY)
        print(json.dumps({"url": plane.url, "token": token}), flush=True)
        await trio.lowlevel.FdStream(os.dup(0)).receive_some()


@attrs.frozen
class Server:
    """The server as the caller sees it."""

    pid: int
    url: httpx.URL
    token: str

    def memory(self) -> float:
        """MiB that are its own."""
        with open(f"/proc/{self.pid}/smaps_rollup") as file:
            lines = dict(line.split(":", 1) for line in file if line.startswith("Rss:"))
        return int(lines["Rss"].split()[0]) / 1024

    def cpu(self) -> float:
        """Milliseconds of user and system time that it has used."""
        with open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def open_server(dsn: str) -> AsyncGenerator[Server]:
    command = [sys.executable, "-m", MODULE, "serve", dsn]
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = json.loads(await process.stdout.receive_some())
    try:
        yield Server(process.pid, httpx.URL(said["url"]), said["token"])
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


# ── the mesh that it has ──


def populate(connection: Connection, members: int, leased: int, now: float) -> None:
    """Members that were admitted, and routers that are up."""
    peers = [PeerId.from_ed25519(number.to_bytes(32)) for number in range(members)]
    roles = [ROLE_ROUTER] * leased + [ROLE_NODE] * (members - leased)
    labels = rows.labels_json({"region": "eu", "zone": "a"})
    issued = rows.issue_values(Issue(bytes(600), now + DAY, "benchmark"))
    values = [
        {"peer_id": str(peer), "role": role, "labels_json": labels, "enrolled_at": rows.to_ms(now), **issued}
        for peer, role in zip(peers, roles, strict=True)
    ]
    connection.execute(insert(nodes), values)
    up = [{"peer_id": str(peer), **rows.lease_values(_lease(peer, now))} for peer in peers[:leased]]
    connection.execute(insert(routers), up)
    changed(connection, Topic.LEASES)


def _lease(peer: PeerId, now: float) -> Lease:
    # Of a port where nobody is: the control plane dials routers, and is not to wait for a name server.
    texts = (f"/ip4/127.0.0.1/tcp/1/p2p/{peer}", f"/ip4/127.0.0.1/tcp/1/tls/sni/r.example/ws/p2p/{peer}")
    return Lease(peer, tuple(Address.parse(text) for text in texts), now, now + DAY, 100, 1000, 120, 1000)


# ── the caller ──


class Caller:
    """One connection that is kept: a request, its answer, the next."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._pending = b""

    async def call(self, request: bytes) -> bytes:
        """The body of the answer, which is 200."""
        await self._stream.send_all(request)
        while (end := self._pending.find(b"\r\n\r\n")) < 0:
            self._pending += await self._stream.receive_some()
        head = self._pending[:end].lower()
        assert head.startswith(b"http/1.1 200"), head
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        parts, held = [self._pending[end + 4 :]], len(self._pending) - end - 4
        while held < length:
            parts.append(await self._stream.receive_some())
            held += len(parts[-1])
        body = b"".join(parts)
        self._pending = body[length:]
        return body[:length]


@attrs.frozen
class Calls:
    """What a measurement found."""

    took: tuple[float, ...]  # milliseconds each, sorted
    rate: float  # a second
    cpu: float  # milliseconds each


async def call_all(
    server: Server, requests: Iterable[bytes], callers: int, seconds: float, check: Callable[[bytes], None]
) -> Calls:
    """Send requests over many connections until the time is over."""
    took, waiting = list[float](), iter(requests)
    began, cpu = trio.current_time(), server.cpu()

    async def keep_calling() -> None:
        async with await trio.open_tcp_stream(server.url.host, server.url.port or 80) as stream:
            caller = Caller(stream)
            for request in waiting:
                started = trio.current_time()
                check(await caller.call(request))
                took.append((trio.current_time() - started) * 1000)
                if trio.current_time() - began > seconds:
                    return

    async with trio.open_nursery() as nursery:
        for _ in range(callers):
            nursery.start_soon(keep_calling)
    rate = len(took) / (trio.current_time() - began)
    return Calls(tuple(sorted(took)), rate, (server.cpu() - cpu) / len(took))


def enroll_request(token: str) -> bytes:
    identity, unix_ms = Identity.generate(), round(time.time() * 1000)
    message = BootstrapEnrollRequest(
        bootstrap_token=token,
        peer_id=str(identity.peer),
        public_key=identity.public_key_bytes,
        labels={"region": "eu"},
        challenge_unix_ms=unix_ms,
        challenge_signature=identity.sign(challenge_text("enroll", identity.peer, unix_ms)),
    )
    body = bytes(message)
    head = f"POST /enroll HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


def check_enrolled(body: bytes) -> None:
    # Read whole it would cost the caller more than the server.
    assert body.startswith(bytes(BootstrapEnrollResponse(status=EnrollmentStatus.APPROVED))), body[:80]


# ── all of it ──


@attrs.frozen
class Settings:
    seconds: float
    members: int
    routers: int
    callers: int


async def measure(database: str, dsn: str, settings: Settings) -> Result:
    async with open_database(dsn) as kept:
        await kept.write(partial(populate, members=settings.members, leased=settings.routers, now=time.time()))
    async with open_server(dsn) as server:
        at_start = server.memory()
        prepared = [enroll_request(server.token) for _ in range(round(settings.seconds * PREPARED_PER_SECOND))]
        enrollments = await call_all(server, prepared, settings.callers, settings.seconds, check_enrolled)
        sizes = list[int]()
        info = repeat(b"GET /info HTTP/1.1\r\nhost: x\r\n\r\n")
        reads = await call_all(server, info, settings.callers, settings.seconds, lambda body: sizes.append(len(body)))
        return Result(
            database=database,
            enrollments=enrollments.rate,
            enrollment_median=enrollments.took[len(enrollments.took) // 2],
            enrollment_worst=enrollments.took[-1],
            enrollment_cpu=enrollments.cpu,
            info_reads=reads.rate,
            info_cpu=reads.cpu,
            info_bytes=sizes[-1],
            memory_at_start=at_start,
            memory=server.memory(),
        )


def verifications(seconds: float) -> float:
    """Credentials verified per second, by one core."""
    key, identity, now = SigningKey.generate(), Identity.generate(), time.time()
    token = mint(key, peer=identity.peer, role=ROLE_NODE, labels={"region": "eu"}, expires_at=now + DAY)
    trusted, count, began = TrustedKeys(frozenset({key.public})), 0, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        verify(token, peer=identity.peer, trusted=trusted, now=now)
        count += 1
    return count / took


@contextmanager
def databases() -> Generator[dict[str, str]]:
    with tempfile.TemporaryDirectory() as folder, run_postgres(durable=True) as postgres:
        yield {"SQLite": str(Path(folder) / "control-plane.db"), "PostgreSQL": postgres.new_dsn()}


def show(results: Sequence[Result], verified: float, settings: Settings) -> None:
    table = Table(title=f"{settings.members} members, {settings.routers} routers, {settings.callers} callers")
    for column in ("", *(result.database for result in results)):
        table.add_column(column, justify="left" if not column else "right")
    figures = [
        ("enrollments per second", "{0.enrollments:.0f}"),
        ("  the median, and the slowest", "{0.enrollment_median:.0f} ms, {0.enrollment_worst:.0f} ms"),
        ("  CPU of each", "{0.enrollment_cpu:.2f} ms"),
        ("reads of /info per second", "{0.info_reads:.0f}"),
        ("  CPU of each", "{0.info_cpu:.2f} ms"),
        ("  bytes of each", "{0.info_bytes}"),
        ("memory at the start, and after it", "{0.memory_at_start:.0f} MiB, {0.memory:.0f} MiB"),
    ]
    for name, text in figures:
        table.add_row(name, *(text.format(result) for result in results))
    table.add_row("credentials verified per second, by one core", *[f"{verified:.0f}"] * len(results))
    Console().print(table)


@click.group(invoke_without_command=True, help=__doc__)
@click.option("--seconds", default=5.0, show_default=True, help="How long each measurement takes.")
@click.option("--members", default=10_000, show_default=True, help="Members that there are.")
@click.option("--routers", default=100, show_default=True, help="Of these, routers that are up.")
@click.option("--callers", default=32, show_default=True, help="Connections to the control plane.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Where to write the figures, too.")
@click.pass_context
def main(
    context: click.Context, seconds: float, members: int, routers: int, callers: int, json_file: Path | None
) -> None:
    if context.invoked_subcommand is not None:
        return
    settings = Settings(seconds, members, routers, callers)
    with databases() as dsns:
        results = [trio.run(measure, name, dsn, settings) for name, dsn in dsns.items()]
    verified = verifications(seconds)
    show(results, verified, settings)
    if json_file is not None:
        figures = {"machine": f"{platform.platform()}, {os.cpu_count()} cores", "verifications": verified}
        json_file.write_text(json.dumps(figures | {"databases": [attrs.asdict(r) for r in results]}, indent=2))


@main.command("serve", hidden=True)
@click.argument("dsn")
def serve_command(dsn: str) -> None:
    trio.run(serve, dsn)


if __name__ == "__main__":
    main()
