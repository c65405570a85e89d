"""What is PostgreSQL's own: a server that goes away and comes back, waits that end, deadlocks, its URL."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
from sqlalchemy import Connection, text

from agentmesh.control_plane import engines
from agentmesh.control_plane.database import RacedError, StoreError, open_database
from agentmesh.control_plane.records import BootstrapToken
from agentmesh.control_plane.store import open_store
from agentmesh.errors import MissingExtraError
from tests.control_plane.plane import open_harness
from tests.servers.postgres import Postgres


def token(token_id: str = "t") -> BootstrapToken:
    return BootstrapToken(token_id, "mesh:role:node", 1, created_at=1.0, expires_at=2.0)


async def test_a_server_that_was_restarted_is_no_error_of_the_next_request(postgres: Postgres) -> None:
    async with open_store(postgres.new_dsn()) as store:
        await store.add_token(token())
        await trio.to_thread.run_sync(postgres.stop)
        for _ in range(2):
            with pytest.raises(StoreError, match="does not answer"):
                await store.tokens()
        await trio.to_thread.run_sync(postgres.start)
        assert await store.tokens() == [token()]
        await store.add_token(token("u"))


async def test_readyz_follows_the_server(tmp_path: Path, postgres: Postgres) -> None:
    async with open_harness(tmp_path, db_dsn=postgres.new_dsn()) as mesh:
        assert (await mesh.http.get("/readyz")).status_code == 200
        await trio.to_thread.run_sync(postgres.stop)
        for path in ("/readyz", "/info", "/keys"):
            response = await mesh.http.get(path)
            assert (response.status_code, response.headers["retry-after"]) == (503, "2")
        assert (await mesh.http.get("/healthz")).status_code == 200
        await trio.to_thread.run_sync(postgres.start)
        assert (await mesh.http.get("/readyz")).status_code == 200


async def test_a_statement_that_waits_for_too_long_is_given_up(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "ANSWER_TIMEOUT", 0.1)
    async with open_database(postgres.new_dsn()) as database:
        with pytest.raises(StoreError):
            await database.read(lambda connection: connection.execute(text("SELECT pg_sleep(30)")))
        assert await database.read(lambda connection: connection.execute(text("SELECT 1")).scalar_one()) == 1


async def test_of_two_that_wait_for_each_other_one_is_raced(postgres: Postgres) -> None:
    raced = 0
    async with open_database(postgres.new_dsn()) as database:
        await database.write(lambda connection: connection.execute(text("CREATE TABLE t (id INTEGER, n INTEGER)")))
        await database.write(lambda connection: connection.execute(text("INSERT INTO t VALUES (1, 0), (2, 0)")))

        def lock(first: int, second: int, connection: Connection) -> None:
            change = text("UPDATE t SET n = n + 1 WHERE id = :id")
            connection.execute(change, {"id": first})
            connection.execute(text("SELECT pg_sleep(0.2)"))
            connection.execute(change, {"id": second})

        async def run(job: Callable[[Connection], None]) -> None:
            nonlocal raced
            try:
                await database.write(job)
            except RacedError:
                raced += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, partial(lock, 1, 2))
            nursery.start_soon(run, partial(lock, 2, 1))
        assert raced == 1


async def test_what_is_read_is_of_one_moment(postgres: Postgres) -> None:
    async with open_database(postgres.new_dsn()) as database:

        def read(connection: Connection) -> tuple[str, str]:
            level = connection.execute(text("SHOW transaction_isolation")).scalar_one()
            return level, connection.execute(text("SHOW transaction_read_only")).scalar_one()

        assert await database.read(read) == ("repeatable read", "on")
        assert await database.write(read) == ("read committed", "off")


async def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not answer"):
        async with open_store(f"postgresql://u:secret@/d?host={tmp_path}"):
            pass


async def test_without_the_driver_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'psycopg'")

    monkeypatch.setattr(engines, "create_engine", missing)
    with pytest.raises(MissingExtraError, match=r"agentmesh\[postgres\]"):
        async with open_store("postgresql://h/d"):
            pass
