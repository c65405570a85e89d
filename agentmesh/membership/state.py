"""The files that outlive a member's process: its key, and its last credential."""

import base64
import json
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


class StateError(MeshError):
    """The state folder holds something that is not ours to read. Remove it, or choose another folder."""


@attrs.frozen
class SavedCredential:
    """A credential as it was issued. `expires_at` is wall-clock seconds."""

    control_plane: str
    token: bytes = attrs.field(repr=False)
    expires_at: float
    trusted: TrustedKeys


@attrs.frozen
class StateDir:
    """A folder (0700) with a member's key and credential (0600 each, written atomically).

    Args:
        path: created when it is not there.
    """

    path: Path = attrs.field(converter=Path)

    def identity(self) -> Identity:
        """The key in the folder; a new one when there is none."""
        return Identity.load_or_create(self.path / IDENTITY_FILE)

    def load(self) -> SavedCredential | None:
        """The saved credential, or None.

        Raises:
            StateError: the file is not what `save` wrote.
        """
        try:
            text = (self.path / CREDENTIAL_FILE).read_text()
        except FileNotFoundError:
            return None
        try:
            return _decode(json.loads(text))
        except (ValueError, TypeError, KeyError) as exc:
            raise StateError(f"{self.path / CREDENTIAL_FILE} is not a saved credential") from exc

    def save(self, saved: SavedCredential) -> None:
        """Keep a credential: it is on the disk when this returns."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.path, prefix=f".{CREDENTIAL_FILE}.")  # mkstemp gives 0600
        with os.fdopen(handle, "w") as file:
            json.dump(_encode(saved), file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, self.path / CREDENTIAL_FILE)


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
    return SavedCredential(
        control_plane=str(fields["control_plane"]),
        token=base64.b64decode(fields["token"], validate=True),
        expires_at=float(fields["expires_at"]),
        trusted=TrustedKeys(frozenset(bytes.fromhex(key) for key in fields["trusted_keys"])),
    )
