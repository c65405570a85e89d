"""Which store a DSN names, and that no text says its password."""

import pytest

from agentmesh.control_plane.dsn import PostgresDatabase, SqliteFile
from agentmesh.pool.registry.dsn import EtcdCluster, MysqlDatabase, parse_registry_dsn, parse_sql_dsn


def test_each_scheme_names_its_store() -> None:
    assert parse_registry_dsn("pool.db") == SqliteFile("pool.db")
    assert isinstance(parse_registry_dsn("postgresql://u@h/d"), PostgresDatabase)
    for scheme in ("mysql", "mariadb"):
        found = parse_registry_dsn(f"{scheme}://u:secret@h:3307/d?unix_socket=/s&password=secret")
        assert isinstance(found, MysqlDatabase)
        assert "secret" not in f"{found!r} {found}"
        assert (found.url.drivername, found.url.port) == ("mysql+pymysql", 3307)
    assert parse_registry_dsn("etcd://h:2379") == EtcdCluster(("http://h:2379",), "/tunnelmesh")
    found = parse_registry_dsn("etcds://a:1,[::1]:2/mesh/pool/")
    assert found == EtcdCluster(("https://a:1", "https://[::1]:2"), "/mesh/pool")
    assert str(found) == "https://a:1,https://[::1]:2/mesh/pool"
    found = parse_registry_dsn("etcd://u:s%40cret@a:1,b:2")
    assert found == EtcdCluster(("http://a:1", "http://b:2"), "/tunnelmesh", ("u", "s@cret"))
    assert "cret" not in f"{found!r} {found}"


@pytest.mark.parametrize(
    "text",
    [
        *("etcd://", "etcd://host", "etcd://host:x", "etcd://u:secret@h", "etcd://h:1,", "etcd://h:70000"),
        *("mysql://u:secret@h", "mysql://u:secret@h:x/d", "mariadb://u:secret@h/", "redis://secret", ""),
    ],
)
def test_what_names_no_store_is_refused_without_being_told(text: str) -> None:
    with pytest.raises(ValueError, match="registry|database") as caught:
        parse_registry_dsn(text)
    assert "secret" not in str(caught.value)


def test_etcd_is_no_database() -> None:
    with pytest.raises(ValueError, match="database"):
        parse_sql_dsn("etcd://h:1")


def test_what_else_it_may_be_is_told() -> None:
    with pytest.raises(ValueError, match="postgresql://, mysql://, mariadb://, etcd://, etcds://, not 'redis'"):
        parse_registry_dsn("redis://h")
