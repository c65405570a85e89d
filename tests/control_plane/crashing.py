"""Control planes that are killed while fifty members a second enroll, and what is left of it on the disk.

    python -m tests.control_plane.crashing [--database sqlite|postgresql] [--kills 1000] [--seed 0]

A member whose request is not answered sends the same request again, as the real client does, until it is. At the end
everybody has an answer, and the database is held to what was said.
"""

import logging
import multiprocessing
import multiprocessing.connection
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from itertools import cycle
from pathlib import Path
from random import Random

import attrs
import click
import httpx
import trio
from sqlalchemy import Connection

from agentmesh.control_plane import queries
from agentmesh.control_plane.config import Config
from agentmesh.control_plane.database import open_database
from agentmesh.control_plane.keyring import keys
from agentmesh.control_plane.policy.open import OPEN_POLICY
from agentmesh.control_plane.server import open_control_plane
from agentmesh.control_plane.store import Store, open_store
from agentmesh.control_plane.tokens import create_token, token_id
from agentmesh.credentials import SigningKey, TrustedKeys, verify
from agentmesh.identity import Identity, challenge_text
from agentmesh.types import PeerId
from agentmesh.wire.messages.mesh.v1 import BootstrapEnrollRequest, BootstrapEnrollResponse, EnrollmentStatus
from tests.servers.postgres import Postgres, run_postgres

logger = logging.getLogger(__name__)

RATE = 50  # enrollments begun per second
CAP = 7  # usages of most bootstrap tokens
ASKERS = 11  # that show each of these
LIFE = 0.2, 0.7  # seconds between two kills, from and to
MAX_WAITING = (
    200  # members without an answer; beyond it nobody new comes, or a slow machine would have ever more of them
)
RETRY_INTERVAL = 0.05, 0.5  # seconds, from and to
ANSWER_TIMEOUT = 20.0  # seconds; whoever is killed is noticed at once
LAST_ANSWERS_TIMEOUT = 60.0  # seconds in which one of those who still wait at the end has to get an answer
REPORT_EVERY = 10  # kills
MANY = 300  # bootstrap tokens; in a long run they are shown again when they are used up
DAY = 86400.0
UNLIMITED = 1e9

# Forks of a process that has everything imported: a control plane is there in a moment.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["agentmesh.control_plane.server", "psycopg"])


# ── what is killed ──


def serve(dsn: str, ready: multiprocessing.connection.Connection) -> None:
    """Run a control plane until killed; send its URL first."""

    async def main() -> None:
        config = Config(
            bind_address="127.0.0.1:0",
            db_dsn=dsn,
            auto_approve_enrollment=True,
            policy=OPEN_POLICY,
            enroll_rate=UNLIMITED,
            enroll_burst=round(UNLIMITED),
        )
        async with open_control_plane(config) as plane:
            ready.send(plane.url)
            await trio.sleep_forever()

    trio.run(main)


class Replica:
    """A control plane in a process of its own."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.url = ""

    async def start(self) -> None:
        """Return when it serves; on PostgreSQL it takes more than one try while that is away."""
        while True:
            ours, theirs = PROCESSES.Pipe(duplex=False)
            self._process = PROCESSES.Process(target=serve, args=(self._dsn, theirs), daemon=True)
            self._process.start()
            theirs.close()
            try:
                self.url = await trio.to_thread.run_sync(ours.recv)
            except EOFError:
                await trio.to_thread.run_sync(self._process.join)
            else:
                return
            finally:
                ours.close()

    async def kill(self) -> None:
        """SIGKILL: it has no time for anything."""
        self._process.kill()
        await trio.to_thread.run_sync(self._process.join)


# ── who asks ──


@attrs.define(eq=False)
class Member:
    """Somebody who enrolls once."""

    peer: PeerId
    token: str
    request: bytes
    answer: BootstrapEnrollResponse | None = None

    @property
    def credential(self) -> bytes | None:
        """What it was told, when it was told that it is in."""
        answer = self.answer
        return answer.biscuit_token if answer and answer.status is EnrollmentStatus.APPROVED else None


def new_member(token: str) -> Member:
    identity, unix_ms = Identity.generate(), round(time.time() * 1000)
    request = BootstrapEnrollRequest(
        bootstrap_token=token,
        peer_id=str(identity.peer),
        public_key=identity.public_key_bytes,
        challenge_unix_ms=unix_ms,
        challenge_signature=identity.sign(challenge_text("enroll", identity.peer, unix_ms)),
    )
    return Member(identity.peer, token, bytes(request))


async def enroll(url: str, request: bytes) -> BootstrapEnrollResponse | None:
    """Ask once. None: it did not answer, not in full, or with 503. Raises OSError, trio.BrokenResourceError."""
    target, answer = httpx.URL(url), b""
    head = f"POST /enroll HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: {len(request)}"
    async with await trio.open_tcp_stream(target.host, target.port or 80) as stream:
        await stream.send_all(f"{head}\r\nconnection: close\r\n\r\n".encode() + request)
        while chunk := await stream.receive_some():
            answer += chunk
    status, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", status)
    if length is None or len(body) < int(length[1]) or status.startswith(b"HTTP/1.1 503"):
        return None
    assert status.startswith(b"HTTP/1.1 200"), answer
    return BootstrapEnrollResponse.parse(body)


@attrs.frozen
class Report:
    """What happened."""

    kills: Counter[str]
    members: int
    admitted: int

    def __str__(self) -> str:
        kills = ", ".join(f"{count} of {what}" for what, count in sorted(self.kills.items()))
        return f"kills: {kills}; {self.members} asked, {self.admitted} were admitted"


class Crashes:
    """Some replicas on one database, and members that enroll.

    Args:
        postgres: the server of the database, to be killed too.
    """

    def __init__(self, dsn: str, replicas: int, rng: Random, postgres: Postgres | None = None) -> None:
        self._dsn, self._rng, self._postgres = dsn, rng, postgres
        self._replicas = [Replica(dsn) for _ in range(replicas)]
        self._members = list[Member]()
        self._answered = trio.Event()  # of one more member; made anew each time
        self._waiting = 0
        self._kills = Counter[str]()

    async def run(self, kills: int) -> Report:
        """Kill so often, one or the other. AssertionError: the database is not what members were told."""
        tokens = list[str]()

        async def add_token(store: Store) -> None:
            value, _ = await create_token(store, time.time, role="node", max_usages=CAP, ttl=DAY)
            tokens.append(value)

        async with open_store(self._dsn) as store, trio.open_nursery() as nursery:
            for _ in range(MANY):
                nursery.start_soon(add_token, store)
        async with AsyncExitStack() as stack:
            for replica in self._replicas:
                await replica.start()
                stack.push_async_callback(replica.kill)
            async with trio.open_nursery() as asking:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._ask_all, cycle(tokens), asking)
                    for number in range(kills):
                        await trio.sleep(self._rng.uniform(*LIFE))
                        await self._kill_and_start(number)
                        if number % REPORT_EVERY == REPORT_EVERY - 1:
                            logger.info("%d kills, %d asked, %d wait", number + 1, len(self._members), self._waiting)
                    nursery.cancel_scope.cancel()
                await self._wait_for_answers()
                asking.cancel_scope.cancel()
        async with open_database(self._dsn) as database:
            await database.read(self._check)
        return Report(self._kills, len(self._members), sum(member.credential is not None for member in self._members))

    async def _kill_and_start(self, number: int) -> None:
        if self._postgres is not None and number % 3 == 1:
            self._kills["PostgreSQL"] += 1
            await trio.to_thread.run_sync(self._postgres.kill)
            await trio.to_thread.run_sync(self._postgres.start)
        else:
            self._kills["control plane"] += 1
            replica = self._replicas[number % len(self._replicas)]
            await replica.kill()
            await replica.start()

    async def _ask_all(self, tokens: Iterator[str], asking: trio.Nursery) -> None:
        began = trio.current_time()
        while True:
            token = next(tokens)
            for _ in range(ASKERS):
                member = new_member(token)
                self._members.append(member)
                self._waiting += 1
                asking.start_soon(self._ask, member)
                await trio.sleep_until(began + len(self._members) / RATE)
                while self._waiting >= MAX_WAITING:
                    await self._answered.wait()

    async def _ask(self, member: Member) -> None:
        """Until there is an answer."""
        while member.answer is None:
            replica = random.choice(self._replicas)
            with suppress(OSError, trio.BrokenResourceError), trio.move_on_after(ANSWER_TIMEOUT):
                member.answer = await enroll(replica.url, member.request)
            if member.answer is None:
                await trio.sleep(random.uniform(*RETRY_INTERVAL))
        self._waiting -= 1
        self._answered.set()
        self._answered = trio.Event()

    async def _wait_for_answers(self) -> None:
        """Until everybody has one, or nobody gets one any more."""
        with trio.move_on_after(LAST_ANSWERS_TIMEOUT) as scope:
            while self._waiting:
                await self._answered.wait()
                scope.deadline = trio.current_time() + LAST_ANSWERS_TIMEOUT

    def _check(self, connection: Connection) -> None:
        assert [member for member in self._members if member.answer is None] == []
        trusted = TrustedKeys(frozenset(SigningKey.from_bytes(key.private_key).public for key in keys(connection)))
        admitted, asked = Counter[str](), Counter[str]()
        for member in self._members:
            node = queries.node(connection, member.peer)
            assert (node.issue.credential if node else None) == member.credential, member.peer
            asked[token_id(member.token)] += 1
            if member.credential is not None:
                admitted[token_id(member.token)] += 1
                verify(member.credential, peer=member.peer, trusted=trusted, now=time.time())
        for token in queries.tokens(connection, limit=MANY):
            assert token.usages == admitted[token.id] == min(CAP, asked[token.id])


async def crash_sqlite(folder: Path, kills: int, rng: Random) -> Report:
    return await Crashes(str(folder / "control-plane.db"), 1, rng).run(kills)


async def crash_postgresql(postgres: Postgres, kills: int, rng: Random) -> Report:
    """Two replicas, and the server itself. It has to wait for the disk."""
    return await Crashes(postgres.new_dsn(), 2, rng, postgres).run(kills)


@click.command(help=__doc__)
@click.option("--database", type=click.Choice(["sqlite", "postgresql"]), default="sqlite", show_default=True)
@click.option("--kills", default=1000, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(database: str, kills: int, seed: int) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    if database == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            report = trio.run(crash_sqlite, Path(folder), kills, Random(seed))
    else:
        with run_postgres(durable=True) as postgres:
            report = trio.run(crash_postgresql, postgres, kills, Random(seed))
    click.echo(report)


if __name__ == "__main__":
    main()
