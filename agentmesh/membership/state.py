"""The files that outlive a member's process: its key, and its last credential."""

import base64
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import attrs

from agentmesh.credentials import TrustedKeys
from agentmesh.errors import MeshError
from agentmesh.identity import Identity

IDENTITY_FILE = "identity.key"
CREDENTIAL_FILE = "credential.json"
MAX_CREDENTIAL_FILE_BYTES = 1024 * 1024
KEY_BYTES = 32


class StateError(MeshError):
    """The state folder holds something that is not ours to read. Remove it, or choose another folder."""


@attrs.frozen
class SavedCredential:
    """A credential as it was issued, and the keys that were trusted then. `expires_at` is wall-clock seconds."""

    control_plane: str
    token: bytes = attrs.field(repr=False)
    expires_at: float
    trusted: TrustedKeys


@attrs.frozen
class StateDir:
    """A folder (0700) with a member's key and credential (0600 each, written atomically). Blocks on the file system.

    Args:
        path: created when it is not there.
    """

    path: Path = attrs.field(converter=Path)

    def identity(self) -> Identity:
        """The key in the folder; a new one when there is none.

        Raises:
            IdentityError: the file is no key, or others may read it.
            OSError: the folder or the file cannot be read, or not be made.
        """
        return Identity.load_or_create(self.path / IDENTITY_FILE)

    def load(self) -> SavedCredential | None:
        """The saved credential, or None.

        Raises:
            StateError: the file is not what `save` wrote.
            OSError: it cannot be read.
        """
        try:
            with (self.path / CREDENTIAL_FILE).open("rb") as file:
                data = file.read(MAX_CREDENTIAL_FILE_BYTES)
        except FileNotFoundError:
            return None
        try:
            return _decode(json.loads(data))
        except (ValueError, TypeError, OverflowError, RecursionError) as exc:
            raise StateError(f"{self.path / CREDENTIAL_FILE} is not a saved credential; remove it to go on") from exc

    def save(self, saved: SavedCredential) -> None:
        """Keep a credential, in the place of the last: it is on the disk when this returns.

        Raises:
            OSError: it cannot be written; the last one is there still.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self.path, prefix=f".{CREDENTIAL_FILE}.")  # mkstemp gives 0600
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(_encode(saved), file, indent=2)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path / CREDENTIAL_FILE)
        except OSError as exc:
            exc.filename = exc.filename or str(self.path / CREDENTIAL_FILE)  # a full disk names none
            raise
        finally:
            Path(temporary).unlink(missing_ok=True)
        _sync_folder(self.path)


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)  # or the new name may be lost with the power
    finally:
        os.close(folder)


def _encode(saved: SavedCredential) -> dict[str, Any]:
    return {
        "control_plane": saved.control_plane,
        "token": base64.b64encode(saved.token).decode(),
        "expires_at": saved.expires_at,
        "trusted_keys": sorted(key.hex() for key in saved.trusted.keys),
    }


def _decode(fields: dict[str, Any]) -> SavedCredential:
    if set(fields) != {"control_plane", "token", "expires_at", "trusted_keys"}:
        raise ValueError("fields")
    keys = frozenset(bytes.fromhex(key) for key in fields["trusted_keys"])
    expires_at = float(fields["expires_at"])
    if not math.isfinite(expires_at) or any(len(key) != KEY_BYTES for key in keys):
        raise ValueError("expires_at or trusted_keys")
    return SavedCredential(
        control_plane=str(fields["control_plane"]),
        token=base64.b64decode(fields["token"], validate=True),
        expires_at=expires_at,
        trusted=TrustedKeys(keys),
    )
