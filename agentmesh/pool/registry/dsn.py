"""Which store a DSN names: a file of SQLite's, a database of a PostgreSQL, MySQL or MariaDB server, or etcd."""

from urllib.parse import unquote, urlsplit

import attrs
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from agentmesh.control_plane.dsn import PostgresDatabase, SqliteFile, parse_dsn

DEFAULT_PREFIX = "/tunnelmesh"
ETCD_SCHEMES = {"etcd": "http", "etcds": "https"}
MYSQL_SCHEMES = ("mysql", "mariadb")
SQL_SCHEMES = ("sqlite", "postgresql", "postgres", *MYSQL_SCHEMES)
WITHOUT_PASSWORD = ("unix_socket", "charset")  # what may be shown of the parameters of a URL


@attrs.frozen
class MysqlDatabase:
    """A database that a MySQL or MariaDB server keeps; its tables are created when they are not there."""

    url: URL = attrs.field(repr=False)  # it may hold a password

    def __str__(self) -> str:
        url, query = self.url, {name: value for name, value in self.url.query.items() if name in WITHOUT_PASSWORD}
        return str(URL.create("mysql", url.username, None, url.host, url.port, url.database, query))


@attrs.frozen
class EtcdCluster:
    """The members of an etcd cluster and where in it the registry is."""

    endpoints: tuple[str, ...]  # of its HTTP gateway, as URLs
    prefix: str = DEFAULT_PREFIX
    user: tuple[str, str] | None = attrs.field(default=None, repr=False)  # name and password

    def __str__(self) -> str:
        return f"{','.join(self.endpoints)}{self.prefix}"


SqlDsn = SqliteFile | PostgresDatabase | MysqlDatabase
RegistryDsn = SqlDsn | EtcdCluster


def parse_registry_dsn(text: str) -> RegistryDsn:
    """The store that `text` names: etcd://user:password@host:port,host:port/prefix, etcds://… over TLS, or as for
    `parse_sql_dsn`.

    Raises:
        ValueError: it names none. The text of the error holds nothing of `text` but its scheme.
    """
    scheme, separator, rest = text.partition("://")
    if not text or (separator and scheme not in (*SQL_SCHEMES, *ETCD_SCHEMES)):
        others = ", ".join(f"{one}://" for one in ("postgresql", *MYSQL_SCHEMES, *ETCD_SCHEMES))
        raise ValueError(f"the registry is an SQLite file, or a URL of {others}, not {scheme!r}")
    if not separator or scheme not in ETCD_SCHEMES:
        return parse_sql_dsn(text)
    members, _, prefix = rest.partition("/")
    userinfo, at, members = members.rpartition("@")
    name, _, password = userinfo.partition(":")
    user = (unquote(name), unquote(password)) if at else None
    urls = [f"{ETCD_SCHEMES[scheme]}://{member}" for member in members.split(",")]
    if not all(map(_is_endpoint, urls)):
        raise ValueError(f"the {scheme}:// URL of the registry has a member that is no host:port")
    prefix = f"/{prefix.strip('/')}" if prefix.strip("/") else DEFAULT_PREFIX
    return EtcdCluster(tuple(urls), prefix, user)


def _is_endpoint(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname and parts.port) and "@" not in url and not parts.query and not parts.fragment
    except ValueError:  # the port
        return False


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
