"""Fixtures: a PostgreSQL server for the whole run, and a database with nothing in it, of either kind."""

from collections.abc import Generator
from pathlib import Path

import pytest

from agentmesh.control_plane import engines
from tests.servers.postgres import Postgres, run_postgres


@pytest.fixture(scope="session")
def postgres() -> Generator[Postgres]:
    with run_postgres() as server:
        yield server


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite does not wait for the disk: no test but those of `test_sqlite` and `test_crash` is about that."""
    monkeypatch.setattr(engines, "PRAGMAS", ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=OFF"))


@pytest.fixture(params=["sqlite", "postgresql"])
def dsn(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a database with nothing in it."""
    if request.param == "sqlite":
        return str(tmp_path / "control-plane.db")
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_dsn()
