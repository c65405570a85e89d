"""Migrations: what earlier versions wrote is kept, and what is made is what the schema says."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, create_engine, inspect, text

from agentmesh.control_plane.database import StoreError, open_database
from agentmesh.control_plane.dsn import PostgresDatabase, SqliteFile, parse_dsn
from agentmesh.control_plane.engines import for_writing, postgres_engine, sqlite_engine
from agentmesh.control_plane.migrations import migrate
from agentmesh.control_plane.records import Status
from agentmesh.control_plane.schema import metadata
from agentmesh.control_plane.store import Store, open_store
from agentmesh.types import Address, PeerId

NOW = 1_800_000_000.0
SCHEMAS = Path(__file__).parent / "schemas"
REVISIONS = {"0.1.0": "0001"}  # of each release


def peer(number: int) -> PeerId:
    return PeerId.from_ed25519(number.to_bytes(32, "big"))


def as_released(release: str, dsn: str) -> None:
    """A database as this release left it. Where it knew no PostgreSQL, as it would have."""
    rows = (SCHEMAS / release / "rows.sql").read_text()
    database = parse_dsn(dsn)
    if not isinstance(database, PostgresDatabase):
        with closing(sqlite3.connect(database.path)) as file:
            file.executescript((SCHEMAS / release / "schema.sql").read_text() + rows)
        return
    engine = create_engine(database.url)
    with engine.begin() as connection:
        migrate(connection, REVISIONS[release])
        for statement in re.sub(r"X'([0-9a-f]*)'", r"'\\x\1'", re.sub("--.*", "", rows)).split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.mark.parametrize("release", REVISIONS)
async def test_what_a_release_wrote_is_kept(release: str, dsn: str) -> None:
    as_released(release, dsn)
    async with open_store(dsn) as store:
        await check_the_mesh_of_0_1_0(store)
    async with open_store(dsn) as store:  # there is nothing left to do
        await check_the_mesh_of_0_1_0(store)


async def check_the_mesh_of_0_1_0(store: Store) -> None:
    assert [key.private_key for key in (await store.mirror.look()).keys] == [bytes(range(32))]
    known = await store.look_up(peer(1), "a1" * 32)
    token, enrollment, node = known.token, known.enrollment, known.node
    assert token is not None
    assert (token.max_usages, token.usages, token.description, token.revoked_at) == (5, 1, "for the lab", None)
    assert enrollment is not None
    assert (enrollment.id, enrollment.status, enrollment.resolved_at) == (1, Status.APPROVED, 1_799_991_000.25)
    assert node is not None
    assert (node.labels, node.issue.credential, node.issue.request) == ({"region": "eu"}, b"\x0a\x0b\x0c", "request 1")
    (revoked,) = [token for token in await store.tokens() if token.id == "b2" * 32]
    assert revoked.revoked_at == 1_799_995_000
    (pending,) = await store.enrollments(Status.PENDING)
    assert (pending.id, pending.peer) == (3, peer(3))
    (lease,) = await store.live_leases(NOW)
    assert lease.addresses == (Address.parse(f"/ip4/10.0.0.1/tcp/4001/p2p/{peer(2)}"),)
    assert (lease.connected_peers, lease.directory_size, lease.connections, lease.connection_limit) == (7, 70, 9, 100)


@pytest.mark.parametrize("old", [False, True])
async def test_migrations_make_what_the_schema_says(dsn: str, old: bool) -> None:
    if old:
        as_released("0.1.0", dsn)

    def differences(connection: Connection) -> list[object]:
        options = {"compare_type": True, "compare_server_default": True}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))

    async with open_database(dsn) as database:
        assert await database.read(differences) == []


async def test_replicas_that_start_at_once_make_the_tables_once(dsn: str) -> None:
    async def start(barrier: trio.Event) -> None:
        await barrier.wait()
        async with open_store(dsn) as store:
            await store.tokens()

    barrier = trio.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(start, barrier)
        barrier.set()


async def test_a_database_of_a_newer_version_is_left_alone(dsn: str) -> None:
    def advance(connection: Connection) -> None:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    async with open_database(dsn) as database:
        await database.write(advance)
    with pytest.raises(StoreError, match="newer version"):
        async with open_database(dsn):
            pass


async def test_a_migration_that_fails_leaves_nothing(dsn: str) -> None:
    database = parse_dsn(dsn)
    engine = for_writing(sqlite_engine(database)) if isinstance(database, SqliteFile) else postgres_engine(database)
    with pytest.raises(LookupError), engine.begin() as connection:
        migrate(connection)
        raise LookupError("at the last moment")
    assert inspect(engine).get_table_names() == []
    engine.dispose()
