"""The control plane's own keys, and what it signs with them."""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from agentmesh.control_plane.records import Issue
from agentmesh.control_plane.refusals import unauthorized
from agentmesh.control_plane.store import Store
from agentmesh.credentials import Credential, SigningKey, TrustedKeys, mint, verify
from agentmesh.errors import CredentialError
from agentmesh.types import PeerId
from agentmesh.wire.messages.mesh.v1 import KeysResponse


class Authority:
    """Mints credentials and says whose are honoured.

    Args:
        keys: oldest first, at least one; the newest mints.
        biscuit_ttl: seconds that a credential is valid.
        wall_clock: gives the seconds since 1970.
    """

    def __init__(self, keys: tuple[SigningKey, ...], biscuit_ttl: float, wall_clock: Callable[[], float]) -> None:
        self._keys, self._biscuit_ttl, self._wall_clock = keys, biscuit_ttl, wall_clock
        self.trusted = TrustedKeys(frozenset(key.public for key in keys))

    @property
    def public_key(self) -> bytes:
        """Of the key that mints: 32 raw bytes."""
        return self._keys[-1].public

    def issue(self, peer: PeerId, role: str, labels: Mapping[str, str], request: str) -> Issue:
        """Mint a credential. `request` names what it answers, as Issue says."""
        # A credential states its expiry in whole seconds.
        expires_at = float(math.floor(self._wall_clock() + self._biscuit_ttl))
        token = mint(self._keys[-1], peer=peer, role=role, labels=labels, expires_at=expires_at)
        return Issue(credential=token, expires_at=expires_at, request=request)

    def verify(self, token: bytes, peer: PeerId) -> Credential:
        """What the credential says of `peer`. Raises RefusedError (401) when it is none of `peer`, or not any more."""
        try:
            return verify(token, peer=peer, trusted=self.trusted, now=self._wall_clock())
        except CredentialError as exc:
            raise unauthorized(f"the credential does not admit the peer: {exc.reason}") from exc

    def key_set(self) -> KeysResponse:
        """The public keys, signed by each of them."""
        answer = KeysResponse(
            public_keys=[key.public for key in self._keys],
            sign_time=datetime.fromtimestamp(self._wall_clock(), UTC),
        )
        signed = bytes(answer)
        answer.signatures = [key.sign(signed) for key in self._keys]
        return answer


async def open_authority(store: Store, biscuit_ttl: float, wall_clock: Callable[[], float]) -> Authority:
    """The authority with the keys in the store; the first is made when there is none. Raises StoreError."""
    kept = await store.signing_keys(SigningKey.generate().to_bytes(), wall_clock())
    return Authority(tuple(SigningKey.from_bytes(key) for key in kept), biscuit_ttl, wall_clock)
