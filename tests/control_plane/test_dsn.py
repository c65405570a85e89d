"""DSNs: which database they name, and that nobody who reads a log or an error learns a password."""

import pytest

from agentmesh.control_plane.config import Config
from agentmesh.control_plane.dsn import PostgresDatabase, SqliteFile, parse_dsn


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("control-plane.db", "control-plane.db"),
        ("/var/lib/a b/x.db", "/var/lib/a b/x.db"),
        ("sqlite:///a/b.db", "a/b.db"),
        ("sqlite:////a/b.db", "/a/b.db"),
    ],
)
def test_a_file_is_named_by_a_path_or_a_url(text: str, path: str) -> None:
    assert parse_dsn(text) == SqliteFile(path)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_server_is_named_by_a_url(scheme: str) -> None:
    found = parse_dsn(f"{scheme}://mesh:secret@db.example:5433/plane?sslmode=require")
    assert isinstance(found, PostgresDatabase)
    url = found.url
    assert (url.host, url.port, url.database, url.username, url.password) == (
        "db.example",
        5433,
        "plane",
        "mesh",
        "secret",
    )
    assert url.query == {"sslmode": "require"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":memory:",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite://x",
        "mysql://u:secret@h/d",
        "postgresql://u:secret@h:x/d",
    ],
)
def test_what_names_no_database_is_refused_without_its_secrets(text: str) -> None:
    with pytest.raises(ValueError, match="database") as caught:
        parse_dsn(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("dsn", ["postgresql://u:secret@h/d", "postgresql://u@/d?host=/run/pg&password=secret"])
def test_passwords_are_not_shown(dsn: str) -> None:
    shown = str(parse_dsn(dsn))
    assert shown.startswith("postgresql://u@")
    assert "secret" not in f"{shown} {parse_dsn(dsn)!r} {Config(db_dsn=dsn)!r}"
