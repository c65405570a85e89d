"""What is SQLite's own: a file and its permissions, what is on disk when, a writer that waits for another."""

import os
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import trio
from sqlalchemy import Connection

from agentmesh.control_plane.database import StoreError, open_database
from agentmesh.control_plane.dsn import SqliteFile
from agentmesh.control_plane.engines import sqlite_engine
from agentmesh.control_plane.records import BootstrapToken
from agentmesh.control_plane.store import open_store
from tests.control_plane.plane import bearer, open_harness


def token(token_id: str = "t") -> BootstrapToken:
    return BootstrapToken(token_id, "mesh:role:node", 1, created_at=1.0, expires_at=2.0)


@pytest.fixture
def quick_disk() -> None:
    """It is not: here the disk is waited for."""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "control-plane.db")


async def test_the_file_is_its_owners_alone(path: str) -> None:
    async with open_store(path):
        names = [path, f"{path}-wal", f"{path}-shm"]
        assert [stat.S_IMODE(os.stat(name).st_mode) for name in names] == [0o600] * 3


async def test_what_is_acknowledged_is_on_disk(path: str) -> None:
    async with open_database(path) as database:

        def pragmas(connection: Connection) -> list[object]:
            names = ("journal_mode", "synchronous", "busy_timeout")
            return [connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names]

        full = 2
        assert await database.read(pragmas) == ["wal", full, 5000]


async def test_a_folder_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        async with open_store(str(tmp_path / "missing" / "x.db")):
            pass


async def test_a_file_that_is_no_database_is_a_store_error(path: str) -> None:
    await trio.Path(path).write_text("this is no database, however long one looks at it" * 100)
    with pytest.raises(StoreError):
        async with open_store(path):
            pass


async def test_a_database_that_is_locked_is_a_store_error(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentmesh.control_plane.engines.BUSY_TIMEOUT", 0.05)
    async with open_store(path) as store:
        with sqlite3.connect(path, isolation_level=None) as locker:
            locker.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError) as caught:
                await store.add_token(token("0123456789abcdef"))
            locker.execute("ROLLBACK")
        locker.close()
        assert "0123456789abcdef" not in f"{caught.value} {caught.value.__cause__}"
        await store.add_token(token())


async def test_a_backup_is_made_while_it_runs(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as mesh:
        member, credential = await mesh.admitted()
        with closing(sqlite3.connect(tmp_path / "control-plane.db")) as reader:
            reader.execute(f"VACUUM INTO '{tmp_path / 'backup.db'}'")
        later, _ = await mesh.admitted()
        keys = mesh.plane.authority.trusted
    async with open_harness(tmp_path, mesh.clock, db_dsn=str(tmp_path / "backup.db")) as mesh:
        assert mesh.plane.authority.trusted == keys
        assert (await mesh.post("/refresh", mesh.refresh_request(member), **bearer(credential))).status_code == 200
        assert await mesh.plane.store.node(later.peer) is None


def test_many_that_open_a_new_file_at_once_wait_for_one_another(tmp_path: Path) -> None:
    """Each sets the journal of the file, for which SQLite has nobody wait."""
    for number in range(20):
        file, together = SqliteFile(str(tmp_path / f"{number}.db")), threading.Barrier(8)

        def open_it(file: SqliteFile = file, together: threading.Barrier = together) -> str:
            engine = sqlite_engine(file)
            together.wait(30)
            with engine.connect() as connection:
                mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
            engine.dispose()
            return str(mode)

        with ThreadPoolExecutor(8) as pool:
            assert [task.result() for task in [pool.submit(open_it) for _ in range(8)]] == ["wal"] * 8
