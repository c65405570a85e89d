"""Which store a DSN names: a file of SQLite's, a database of a PostgreSQL, MySQL or MariaDB server, or etcd."""

import attrs
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from agentmesh.control_plane.dsn import PostgresDatabase, SqliteFile, parse_dsn

MYSQL_SCHEMES = ("mysql", "mariadb")
WITHOUT_PASSWORD = ("unix_socket", "charset")  # what may be shown of the parameters of a URL


@attrs.frozen
class MysqlDatabase:
    """A database that a MySQL or MariaDB server keeps; its tables are created when they are not there."""

    url: URL = attrs.field(repr=False)  # it may hold a password

    def __str__(self) -> str:
        url, query = self.url, {name: value for name, value in self.url.query.items() if name in WITHOUT_PASSWORD}
        return str(URL.create("mysql", url.username, None, url.host, url.port, url.database, query))


SqlDsn = SqliteFile | PostgresDatabase | MysqlDatabase


def parse_sql_dsn(text: str) -> SqlDsn:
    """The database that `text` names: a path, sqlite:///path, postgresql://…, mysql://… or mariadb://….

    Raises:
        ValueError: it names none. The text of the error holds nothing of `text` but its scheme.
    """
    scheme, separator, _ = text.partition("://")
    if not separator or scheme not in MYSQL_SCHEMES:
        return parse_dsn(text)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # whose text is the URL, with the password in it
        raise ValueError(f"the {scheme}:// URL of the registry cannot be read") from None
    if not url.database:
        raise ValueError(f"the {scheme}:// URL of the registry names no database")
    return MysqlDatabase(url.set(drivername="mysql+pymysql"))
