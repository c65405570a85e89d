"""An etcd of the tests' own: one member, on loopback, no waiting for the disk, a folder that is gone afterwards."""

import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import attrs

from tests.servers.notifying import Notifying, running
from tests.servers.server import free_port

SETTINGS = ("--unsafe-no-fsync", "--heartbeat-interval=50", "--election-timeout=250", "--name=one")


@attrs.frozen
class Etcd:
    """Attributes:
    process: of the server.
    port: of 127.0.0.1, of its HTTP gateway.
    """

    process: Notifying
    port: int
    _numbers: Iterator[int] = attrs.field(factory=count, init=False)

    def new_dsn(self) -> str:
        """Of a prefix with nothing below it."""
        return f"etcd://127.0.0.1:{self.port}/test-{next(self._numbers)}"


@contextmanager
def run_etcd() -> Generator[Etcd]:
    """Run a server for the length of the block."""
    with tempfile.TemporaryDirectory(prefix="etcd") as name:
        port, peers = free_port(), free_port()
        command = [
            "etcd",
            *SETTINGS,
            f"--data-dir={name}/data",
            f"--listen-client-urls=http://127.0.0.1:{port}",
            f"--advertise-client-urls=http://127.0.0.1:{port}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-cluster=one=http://127.0.0.1:{peers}",
        ]
        with running(Notifying(command, Path(name))) as process:
            yield Etcd(process, port)
