"""Which database a DSN names: a file of SQLite's, or one of a PostgreSQL server."""

import attrs
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

WITHOUT_PASSWORD = ("host", "port", "dbname")  # what may be shown of the parameters of a PostgreSQL URL


@attrs.frozen
class SqliteFile:
    """A file, created when it is not there."""

    path: str

    def __str__(self) -> str:
        return self.path


@attrs.frozen
class PostgresDatabase:
    """A database that a PostgreSQL server keeps; its tables are created when they are not there."""

    url: URL = attrs.field(repr=False)  # it may hold a password

    def __str__(self) -> str:
        url, query = self.url, {name: value for name, value in self.url.query.items() if name in WITHOUT_PASSWORD}
        return str(URL.create("postgresql", url.username, None, url.host, url.port, url.database, query))


Dsn = SqliteFile | PostgresDatabase


def parse_dsn(text: str) -> Dsn:
    """The database that `text` names: a path, sqlite:///path, or postgresql://user:password@host/database.

    Raises:
        ValueError: it names none. The text of the error holds nothing of `text` but its scheme.
    """
    scheme, separator, rest = text.partition("://")
    if separator and scheme in ("postgresql", "postgres"):
        return _postgres(text)
    path = text if not separator else rest.removeprefix("/") if scheme == "sqlite" and rest.startswith("/") else ""
    if not path or path == ":memory:":
        raise ValueError(
            f"the database is an SQLite file or a postgresql:// URL, not {scheme if separator else text!r}"
        )
    return SqliteFile(path)


def _postgres(text: str) -> PostgresDatabase:
    try:
        return PostgresDatabase(make_url(text).set(drivername="postgresql+psycopg"))
    except (ArgumentError, ValueError):  # whose text is the URL, with the password in it
        raise ValueError("the postgresql:// URL of the database cannot be read") from None
