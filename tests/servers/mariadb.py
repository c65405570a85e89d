"""A MariaDB server of the tests' own: on loopback, without users, not waiting for the disk, in a folder for a while."""

import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import attrs
from sqlalchemy import URL, create_engine, text

from tests.servers.notifying import Notifying, is_root, running
from tests.servers.server import find_program, free_port

SETTINGS = (
    "--no-defaults",
    "--skip-grant-tables",  # nor any other table of the system: there is nothing to install first
    "--bind-address=127.0.0.1",
    "--skip-log-bin",
    "--performance-schema=off",
    "--innodb-buffer-pool-size=16M",
    "--innodb-log-file-size=8M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
    "--innodb-flush-method=nosync",
)


@attrs.frozen
class Mariadb:
    """Attributes:
    process: of the server.
    port: of 127.0.0.1.
    """

    process: Notifying
    port: int
    _numbers: Iterator[int] = attrs.field(factory=count, init=False)

    def new_dsn(self) -> str:
        """Of a database with nothing in it, whose names are compared without regard to case, as is usual."""
        name = f"test_{next(self._numbers)}"
        engine = create_engine(self._url("mysql+pymysql", ""))
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"))
        engine.dispose()
        return self._url("mysql", name).render_as_string(hide_password=False)

    def _url(self, scheme: str, database: str) -> URL:
        return URL.create(scheme, "root", host="127.0.0.1", port=self.port, database=database)


@contextmanager
def run_mariadb() -> Generator[Mariadb]:
    """Make a data folder and run a server on it for the length of the block."""
    with tempfile.TemporaryDirectory(prefix="my") as name:  # not in pytest's: a socket's path is short
        folder = Path(name)
        (folder / "data").mkdir()
        port = free_port()
        program = Path(find_program("mariadbd")).resolve()
        share = next(program.parent.parent.glob("share/*/charsets")).parent  # called mysql or mariadb
        command = [
            "mariadbd",
            *SETTINGS,
            *(("--user=root",) if is_root() else ()),
            f"--basedir={program.parent.parent}",
            f"--lc-messages-dir={share}",
            f"--character-sets-dir={share / 'charsets'}",
            f"--datadir={folder / 'data'}",
            f"--tmpdir={folder}",
            f"--port={port}",
            f"--socket={folder / 'socket'}",
            f"--pid-file={folder / 'pid'}",
        ]
        with running(Notifying(command, folder)) as process:
            yield Mariadb(process, port)
