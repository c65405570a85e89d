"""A PostgreSQL server of the tests' own: Debian's programs, a data folder that is gone afterwards, a socket beside it.

PostgreSQL refuses to run as root. There it runs as `nobody`, with links to its programs where `nobody` can reach them.
"""

import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from urllib.parse import quote

import attrs
import psycopg
from psycopg import sql

from tests.servers.server import UNPACKED, environment, find_program

AS_ROOT = os.geteuid() == 0
AS_NOBODY = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups") if AS_ROOT else ()
INITDB = ("--username=mesh", "--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8")
SETTINGS = {
    "listen_addresses": "",
    "max_connections": 200,
    "shared_buffers": "16MB",
    "jit": "off",
    "log_checkpoints": "off",
}
DURABLE = {"recovery_init_sync_method": "syncfs"}  # after a crash: every file by itself takes seconds
QUICK = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}  # a power cut would ruin it


@attrs.frozen
class Postgres:
    """A server that can be stopped and started again on the same files.

    Attributes:
        folder: of its data and its socket.
        durable: whether it waits for the disk, as a real one does. Slow.
    """

    folder: Path
    programs: Path
    durable: bool
    _numbers: Iterator[int] = attrs.field(factory=count, init=False)

    @property
    def _pid_file(self) -> Path:
        return self.folder / "data/postmaster.pid"

    def start(self) -> None:
        """Return when it takes connections. A start after `kill` recovers first."""
        settings = SETTINGS | {"unix_socket_directories": self.folder} | (DURABLE if self.durable else QUICK)
        options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
        log = self.folder / "log"
        try:
            self._control("start", "-w", "-t", "60", "-l", log, "-o", options)
        except AssertionError as exc:
            exc.add_note(log.read_text())
            raise

    def stop(self) -> None:
        if self._pid_file.exists():
            self._control("stop", "-m", "fast")

    def kill(self) -> None:
        """SIGKILL for all its processes, as when the machine goes down. They are gone when it returns."""
        server = int(self._pid_file.read_text().splitlines()[0])
        backends = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        for pid in (server, *map(int, backends)):
            with suppress(ProcessLookupError):
                _kill(pid)
        for lock in (self._pid_file, self.folder / ".s.PGSQL.5432.lock"):
            lock.unlink()  # its process may be a zombie for long, and then it looks alive

    def new_dsn(self) -> str:
        """Of a database with nothing in it: a schema of its own, which is there much faster than a database."""
        schema = f"test_{next(self._numbers)}"
        with psycopg.connect(self._dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        return f"{self._dsn()}&options={quote(f'-csearch_path={schema}')}"

    def _dsn(self) -> str:
        return f"postgresql://mesh@/postgres?host={quote(str(self.folder))}"

    def _control(self, *arguments: str | Path) -> None:
        _run([self.programs / "pg_ctl", "-D", self.folder / "data", *arguments])


@contextmanager
def run_postgres(*, durable: bool = False) -> Generator[Postgres]:
    """Make a data folder and run a server on it for the length of the block."""
    with tempfile.TemporaryDirectory(prefix="pg") as name:  # not in pytest's: those are closed to others, and far down
        folder = Path(name)
        programs = _reachable_programs(folder)
        if AS_ROOT:
            shutil.chown(folder, "nobody", "nogroup")
        _run([programs / "initdb", "-D", folder / "data", *INITDB])
        server = Postgres(folder, programs, durable)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _kill(pid: int) -> None:
    with open(os.pidfd_open(pid)) as process:
        signal.pidfd_send_signal(process.fileno(), signal.SIGKILL)
        select.select([process], [], [])


def _run(command: Sequence[str | Path]) -> None:
    done = subprocess.run(
        [*AS_NOBODY, *command], env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert done.returncode == 0, done.stdout


def _reachable_programs(folder: Path) -> Path:
    """The folder of initdb, pg_ctl and postgres. PostgreSQL finds the rest of its files from there."""
    programs = Path(find_program("postgres")).resolve().parent
    if not AS_ROOT or all(parent.stat().st_mode & 0o001 for parent in programs.parents):
        return programs
    root = folder / "root"
    for part in ("usr/lib", "usr/share/postgresql"):
        shutil.copytree(UNPACKED / part, root / part, symlinks=True, copy_function=_link)
    folder.chmod(0o755)
    return root / programs.relative_to(UNPACKED.resolve())


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # on another disk
        shutil.copy2(source, target, follow_symlinks=False)
