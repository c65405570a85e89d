"""Servers that say when they are ready, as systemd has them do it (sd_notify), for fixtures that last a whole run."""

import os
import signal
import socket
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from tests.servers.server import environment, find_program

START_TIMEOUT = 60.0  # seconds of real time; machines are busy at times
STOP_TIMEOUT = 30.0


@attrs.define
class Notifying:
    """A server that can be stopped, frozen and started again on the same files.

    Attributes:
        command: the program, found by `find_program`, and its arguments.
        folder: where its socket of notifications and its log are.
    """

    command: Sequence[str | Path]
    folder: Path
    _process: subprocess.Popen[bytes] | None = attrs.field(default=None, init=False)

    def start(self) -> None:
        """Return when it says that it is ready."""
        assert self._process is None
        path, log = self.folder / "notify", self.folder / "log"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices, log.open("ab") as output:
            notices.bind(str(path))
            notices.settimeout(START_TIMEOUT)
            self._process = subprocess.Popen(
                [find_program(str(self.command[0])), *self.command[1:]],
                env={**environment(), "NOTIFY_SOCKET": str(path)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            try:
                while b"READY=1" not in notices.recv(4096):
                    pass
            except TimeoutError as exc:
                exc.add_note(log.read_text(errors="replace"))
                raise

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Its process is gone when this returns."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.send_signal(signal.SIGCONT)
            self._process.wait(STOP_TIMEOUT)
            self._process = None


@contextmanager
def running(server: Notifying) -> Generator[Notifying]:
    """The server runs for the length of the block."""
    try:
        server.start()
        yield server
    finally:
        server.stop(signal.SIGKILL)


def is_root() -> bool:
    return os.geteuid() == 0
