"""Which process this is: an ID that stays the same when it is started again, and a number that does not."""

import logging
import os
import secrets
import tempfile
from pathlib import Path

import attrs

from agentmesh.pool.agent.config import ConfigError
from agentmesh.protocols.pool.fields import is_identifier

logger = logging.getLogger(__name__)

INSTANCE_FILE = "instance_id"
MAX_FILE_BYTES = 256
ID_BYTES = 10  # random, twice as many characters
PREFIX = "inst-"
CONNECTION_PREFIX = "conn-"


@attrs.frozen
class Instance:
    """One process of an agent.

    Attributes:
        instance_id: the same after a restart.
        boot: another after each.
        is_kept: whether the ID was read or written; if not, the next start has another.
    """

    instance_id: str
    boot: str
    is_kept: bool


def load_instance(folder: str | os.PathLike[str], configured: str = "") -> Instance:
    """Who this process is. Blocks on the file system.

    Args:
        folder: of the agent's state. Processes that share one are taken for copies of each other.
        configured: the ID that the configuration gives; "" has one read from the folder, or made and kept there.
    Raises:
        ConfigError: the configured ID cannot be one.
    A file that cannot be read or written, or holds no ID, is no error: there is a warning, and a fresh ID.
    """
    boot = secrets.token_hex(8)
    if configured:
        if not is_identifier(configured):
            raise ConfigError("agent.instance_id is no identifier")
        return Instance(configured, boot, is_kept=True)
    path = Path(folder) / INSTANCE_FILE
    if found := _read(path):
        return Instance(found, boot, is_kept=True)
    fresh = PREFIX + secrets.token_hex(ID_BYTES)
    kept = _write(path, fresh)
    return Instance(kept or fresh, boot, is_kept=bool(kept))


def make_connection_id() -> str:
    """A connection ID that no other dial of any process has."""
    return CONNECTION_PREFIX + secrets.token_hex(ID_BYTES)


def _read(path: Path) -> str:
    """The ID in the file; "" when there is no file, or no ID in it."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return ""
    except OSError as exc:
        logger.warning("instance ID cannot be read", extra={"path": path, "reason": exc})
        return ""
    text = data.decode("ascii", "replace").strip()
    if not is_identifier(text):
        logger.warning("instance ID is damaged: a new one is made", extra={"path": path})
        return ""
    return text


def _write(path: Path, instance_id: str) -> str:
    """Keep an ID: all of it or nothing. Returns the one that is kept then, "" when none can be.

    Of two processes that are first at once, both have the same.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(f"{instance_id}\n".encode())
                file.flush()
                os.fsync(file.fileno())
            return _place(temporary, path, instance_id)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as exc:
        logger.warning("instance ID cannot be kept", extra={"path": path, "reason": exc})
        return ""


def _place(temporary: str, path: Path, instance_id: str) -> str:
    try:
        os.link(temporary, path)
    except FileExistsError:
        if other := _read(path):
            return other
        os.replace(temporary, path)  # a damaged one
    return instance_id
