"""Where the local API listens: a Unix socket of its owner's, or a port of this machine."""

import errno
import os
import socket
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import trio

MAX_PATH_BYTES = 103  # what every system that has such sockets takes; longer ones it would cut or refuse
BACKLOG = 128


@contextmanager
def listen_on_socket(path: Path) -> Generator[trio.SocketListener]:
    """A Unix socket that only its owner may use; it is gone when the block ends. One that a dead process left is
    replaced.

    Raises:
        OSError: the path is too long, a living process listens there, something else is there, or there is no folder.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, f"{path}: a socket's path has at most {MAX_PATH_BYTES} bytes")
    _make_room(path)
    listening = socket.socket(socket.AF_UNIX)
    try:
        _bind(listening, path)
        with trio.socket.from_stdlib_socket(listening) as bound:
            yield trio.SocketListener(bound)
    finally:
        listening.close()
        if path.is_socket():
            path.unlink()


def _make_room(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EEXIST, f"{path}: there is something that is no socket")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            raise OSError(errno.EADDRINUSE, f"{path}: another process listens there")


def _bind(listening: socket.socket, path: Path) -> None:
    try:
        listening.bind(str(path))
        path.chmod(0o600)
        listening.listen(BACKLOG)  # only now can anybody connect
    except OSError as exc:
        raise OSError(exc.errno, f"cannot listen on {path}: {exc.strerror}") from exc


async def listen_on_port(host: str, port: int) -> list[trio.SocketListener]:
    """Listeners on `host:port`; port 0 takes any free one. Raises OSError when it is taken or not ours."""
    try:
        return list(await trio.open_tcp_listeners(port, host=host))
    except OSError as exc:
        raise OSError(exc.errno, f"cannot listen on {host}:{port}: {exc.strerror}") from exc
