"""Getting in on the word of an identity provider instead of a bootstrap token."""

import logging
from collections.abc import Mapping
from pathlib import Path

import trio

from agentmesh.control_plane.client import ControlPlaneClient, Issued
from agentmesh.control_plane.errors import UnauthorizedError
from agentmesh.control_plane.exchange import Exchange
from agentmesh.errors import CredentialError
from agentmesh.identity import Identity

logger = logging.getLogger(__name__)

MAX_JWT_BYTES = 64 * 1024


class RegisteringClient(ControlPlaneClient):
    """Registers where others enroll, and shows what the provider says now at each renewal.

    Args:
        jwt_path: of a file with a token of the provider. It is read each time: whoever puts tokens into files, as
            Kubernetes does, replaces each before it expires.
    """

    def __init__(self, identity: Identity, exchange: Exchange, jwt_path: Path) -> None:
        super().__init__(identity, exchange)
        self._jwt_path = jwt_path

    async def enroll(
        self,
        token: str,
        *,
        role: str = "",
        labels: Mapping[str, str] | None = None,
        poll_interval: float | None = None,
    ) -> Issued:
        """Register. The bootstrap token is not looked at.

        Raises:
            CredentialError: the file cannot be read.
            Otherwise as `register`.
        """
        return await self.register(await self._read(), role=role, labels=labels)

    async def refresh(self, credential: bytes, *, jwt: str = "") -> Issued:
        """As `ControlPlaneClient.refresh`, with the token in the file; without it when that is of no use any more."""
        try:
            return await super().refresh(credential, jwt=jwt or await self._read())
        except (CredentialError, UnauthorizedError) as exc:
            logger.info("renewing on what the identity provider said before", extra={"reason": exc})
            return await super().refresh(credential)

    async def _read(self) -> str:
        try:
            data = await trio.to_thread.run_sync(_first_bytes, self._jwt_path)
            return data.decode("ascii").strip()
        except OSError as exc:
            raise CredentialError(f"{self._jwt_path}: {exc.strerror}", "malformed") from exc
        except UnicodeDecodeError as exc:
            raise CredentialError(f"{self._jwt_path}: no token", "malformed") from exc


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_JWT_BYTES)
