"""The user and the password that a SOCKS or HTTP proxy asks for, and the file where they are."""

import secrets
from pathlib import Path
from typing import Self

import attrs

from agentmesh.membership import StateError

MAX_PART_BYTES = 255  # of the user and of the password (RFC 1929)
MAX_FILE_BYTES = 4096


@attrs.frozen
class Credentials:
    """A user and a password, as bytes."""

    user: bytes
    password: bytes = attrs.field(repr=False)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Out of a file with `user:password`, which only its owner may read.

        Raises:
            StateError: others may read it, or that is not what it holds.
            OSError: it cannot be read.
        """
        if path.stat().st_mode & 0o077:
            raise StateError(f"{path}: others may read this password; chmod 600")
        with path.open("rb") as file:
            user, colon, password = file.read(MAX_FILE_BYTES).rstrip(b"\r\n").partition(b":")
        if not colon or not all(0 < len(part) <= MAX_PART_BYTES for part in (user, password)) or b"\n" in password:
            raise StateError(f"{path}: holds no user:password of at most {MAX_PART_BYTES} bytes each")
        return cls(user, password)

    def accepts(self, user: bytes, password: bytes) -> bool:
        """Whether these are the ones; how long that takes says nothing of them."""
        return secrets.compare_digest(user, self.user) & secrets.compare_digest(password, self.password)
