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
    """Registers where others enroll, and shows at each renewal what the provider says anew.

    Args:
        jwt_path: of a file with a token of the provider. It is read each time: whoever puts tokens into files, as
            Kubernetes does, replaces each before it expires.
    """

    def __init__(self, identity: Identity, exchange: Exchange, jwt_path: Path) -> None:
        super().__init__(identity, exchange)
        self._jwt_path = jwt_path
        self._shown = ""  # the last token that was taken

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
        jwt = await self._read()
        issued = await self.register(jwt, role=role, labels=labels)
        self._shown = jwt
        return issued

    async def refresh(self, credential: bytes, *, jwt: str = "") -> Issued:
        """As `ControlPlaneClient.refresh`, with the token in the file if it is a new one.

        A credential ends with the token that it was issued for; one that is renewed on what was said before does not.
        When the new token is of no use, what was said before has to do.
        """
        try:
            jwt = jwt or await self._read()
            if jwt != self._shown:
                issued = await super().refresh(credential, jwt=jwt)
                self._shown = jwt
                return issued
        except (CredentialError, UnauthorizedError) as exc:
            logger.warning("renewing on what the identity provider said before", extra={"reason": exc})
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
