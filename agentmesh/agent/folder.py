"""The data folder of an agent's process, which is its own: with another in it there would be two of one instance."""

import fcntl
import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger(__name__)


@contextmanager
def hold_folder(path: Path) -> Generator[None]:
    """For the length of the block, others that hold the folder hear that they are not alone: there is a warning.

    It is no error: whoever takes over from a process that stops may come while that one's last streams end.

    Raises:
        OSError: the folder cannot be opened.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.warning("another process runs in this data folder", extra={"path": path, "see": "--data-dir"})
        except OSError as exc:  # a file system that knows no locks
            logger.debug("the data folder cannot be locked", extra={"path": path, "reason": exc})
        yield
    finally:
        os.close(folder)
