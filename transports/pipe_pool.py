"""Pipes of the kernel, for `splice`: bounded in number, and closed whatever happens."""

import os
import sys
from contextlib import suppress
from types import TracebackType
from typing import Self

if sys.platform == "linux":
    import fcntl

PIPE_BYTES = 1024 * 1024  # of one pipe; where the kernel gives no more than its own default, that has to do
MAX_PIPES = 64  # taken at once: as many of that size as Linux gives a user without privileges
MAX_IDLE_PIPES = 8  # kept for the next chunk


class Pipe:
    """One pipe. Its calls never wait: BlockingIOError says that there is nothing to take, or no room.

    Attributes:
        held: bytes that are in it.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.held = 0
        with suppress(OSError):  # more than this user may have in pipes
            fcntl.fcntl(self._writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def fill(self, descriptor: int, max_bytes: int) -> int:
        """Take bytes from a socket; 0 at its end."""
        size = os.splice(descriptor, self._writer, max_bytes, flags=os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK)
        self.held += size
        return size

    def drain(self, descriptor: int) -> int:
        """Give bytes to a socket."""
        size = os.splice(self._reader, descriptor, self.held, flags=os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK)
        self.held -= size
        return size

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


class PipePool:
    """Pipes to take and give back.

    Args:
        max_pipes: how many may be taken at once.
        max_idle: how many are kept open beside them.
    Attributes:
        taken: how many are taken.
    """

    def __init__(self, max_pipes: int = MAX_PIPES, max_idle: int = MAX_IDLE_PIPES) -> None:
        self.taken = 0
        self._max_pipes = max_pipes
        self._max_idle = max_idle
        self._idle: list[Pipe] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the idle ones, and from now on each that is given back."""
        self._max_idle = 0
        self.trim()

    @property
    def idle(self) -> int:
        return len(self._idle)

    def trim(self) -> None:
        """Close the idle ones."""
        while self._idle:
            self._idle.pop().close()

    def take(self) -> Pipe | None:
        """An empty pipe; None when max_pipes are taken, or there are no descriptors."""
        if self.taken >= self._max_pipes:
            return None
        try:
            pipe = self._idle.pop() if self._idle else Pipe()
        except OSError:
            return None
        self.taken += 1
        return pipe

    def give(self, pipe: Pipe) -> None:
        """Give a pipe back. One that still holds bytes is closed, and they are lost."""
        self.taken -= 1
        if pipe.held or len(self._idle) >= self._max_idle:
            pipe.close()
        else:
            self._idle.append(pipe)
