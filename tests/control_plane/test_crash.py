"""kill -9 at any moment, with fifty enrollments a second: nobody loses what it was told, no token admits one more."""

from collections.abc import Generator
from pathlib import Path
from random import Random

import pytest

from tests.control_plane.crashing import crash_postgresql, crash_sqlite
from tests.servers.postgres import Postgres, run_postgres

KILLS = 4  # `python -m tests.control_plane.crashing` goes on for as long as one likes


@pytest.fixture
def durable() -> Generator[Postgres]:
    with run_postgres(durable=True) as server:
        yield server


async def test_kill_9_of_a_control_plane_on_sqlite(tmp_path: Path) -> None:
    report = await crash_sqlite(tmp_path, KILLS, Random(1))
    assert report.kills == {"control plane": KILLS}
    assert report.admitted > 0


async def test_kill_9_of_two_replicas_and_their_postgresql(durable: Postgres) -> None:
    report = await crash_postgresql(durable, KILLS, Random(2))
    assert report.kills == {"control plane": KILLS - 1, "PostgreSQL": 1}
    assert report.admitted > 0
