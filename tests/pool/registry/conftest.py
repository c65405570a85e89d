"""Fixtures: servers for the whole run, and a store with nothing in it, of each kind."""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest
from trio.testing import MockClock

from agentmesh.control_plane import engines
from agentmesh.pool.registry import MemoryRegistry, RegistryLimits
from tests.pool.registry.routers import Router, router_on
from tests.pool.registry.stores import Store, etcd_store, memory_store, sql_store
from tests.servers.etcd import Etcd, run_etcd
from tests.servers.mariadb import Mariadb, run_mariadb
from tests.servers.postgres import Postgres, run_postgres

Opener = Callable[[RegistryLimits], AbstractAsyncContextManager[Store]]
SQL_KINDS = ("sqlite", "postgres", "mariadb")
KINDS = ("memory", *SQL_KINDS, "etcd")


@pytest.fixture(scope="session")
def postgres() -> Generator[Postgres]:
    with run_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Generator[Mariadb]:
    with run_mariadb() as server:
        yield server


@pytest.fixture(scope="session")
def etcd() -> Generator[Etcd]:
    with run_etcd() as server:
        yield server


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite does not wait for the disk."""
    monkeypatch.setattr(engines, "PRAGMAS", ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=OFF"))


def new_dsn(request: pytest.FixtureRequest, kind: str) -> str:
    """Of a database with nothing in it."""
    if kind == "sqlite":
        folder: Path = request.getfixturevalue("tmp_path")
        return str(folder / "pool.db")
    if kind == "mariadb":
        mariadb: Mariadb = request.getfixturevalue("mariadb")
        return mariadb.new_dsn()
    if kind == "etcd":
        etcd: Etcd = request.getfixturevalue("etcd")
        return etcd.new_dsn()
    postgres: Postgres = request.getfixturevalue("postgres")
    return postgres.new_dsn()


@pytest.fixture(params=SQL_KINDS)
def sql_dsn(request: pytest.FixtureRequest) -> str:
    return new_dsn(request, request.param)


@pytest.fixture(scope="session")
def postgres_dsn(postgres: Postgres) -> str:
    return postgres.new_dsn()


@pytest.fixture(scope="session")
def mariadb_dsn(mariadb: Mariadb) -> str:
    return mariadb.new_dsn()


def opener(request: pytest.FixtureRequest, kind: str) -> Opener:
    """Opens a store with nothing in it; on a server one that others had before."""
    match kind:
        case "memory":
            return memory_store
        case "sqlite":
            return partial(sql_store, dsn=new_dsn(request, kind))
        case "etcd":
            return partial(etcd_store, dsn=new_dsn(request, kind))
        case _:
            return partial(sql_store, dsn=request.getfixturevalue(f"{kind}_dsn"))


@pytest.fixture(params=KINDS)
def open_store(request: pytest.FixtureRequest) -> Opener:
    return opener(request, request.param)


@pytest.fixture
async def store(open_store: Opener) -> AsyncGenerator[Store]:
    async with open_store(RegistryLimits()) as opened:
        yield opened


@pytest.fixture
def memory(autojump_clock: MockClock) -> MemoryRegistry:
    """A registry in memory on virtual time."""
    return MemoryRegistry(clock=autojump_clock.current_time)


@pytest.fixture
async def router(memory: MemoryRegistry) -> AsyncGenerator[Router]:
    async with router_on(memory) as opened:
        yield opened
