"""The mesh's rules in a file, so that a member that starts again while the control plane is away knows them."""

import json
import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

logger = logging.getLogger(__name__)

RULES_FILE = "rules.json"
MAX_RULES_FILE_BYTES = 16 * 1024 * 1024


@attrs.frozen
class KeptRules:
    """A file in a member's state folder. Blocks on the file system.

    Args:
        folder: the state folder.
        mesh: whose rules they are; those of another mesh are none.
    """

    folder: Path
    mesh: str

    def load(self) -> tuple[str, ...] | None:
        """The rules as they were last saved; None when there are none that can be read."""
        try:
            with (self.folder / RULES_FILE).open("rb") as file:
                found: Any = json.loads(file.read(MAX_RULES_FILE_BYTES))
            return tuple(map(str, found["rules"])) if found["control_plane"] == self.mesh else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as exc:
            logger.warning("the policy that was kept is not read", extra={"reason": repr(exc)})
            return None

    def save(self, rules: Sequence[str]) -> None:
        """Keep rules, in the place of the last. A disk that does not take them is no reason not to go by them."""
        try:
            handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=f".{RULES_FILE}.")  # mkstemp gives 0600
            try:
                with os.fdopen(handle, "w") as file:
                    json.dump({"control_plane": self.mesh, "rules": list(rules)}, file, indent=2)
                os.replace(temporary, self.folder / RULES_FILE)
            finally:
                Path(temporary).unlink(missing_ok=True)
        except OSError as exc:
            logger.error("policy not kept", extra={"reason": exc})
