"""The control plane's own keys, and what it signs with them."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import attrs

from agentmesh.control_plane.database import RacedError
from agentmesh.control_plane.keyring import StoredKey, honoured
from agentmesh.control_plane.mirror import Mirror
from agentmesh.control_plane.records import Issue
from agentmesh.control_plane.refusals import unauthorized
from agentmesh.control_plane.store import Store, until_settled
from agentmesh.credentials import Credential, SigningKey, TrustedKeys, mint, verify
from agentmesh.errors import CredentialError
from agentmesh.facts import Fact
from agentmesh.types import PeerId
from agentmesh.wire.messages.mesh.v1 import KeysResponse

logger = logging.getLogger(__name__)


@attrs.frozen
class Rotation:
    """One key took over from another."""

    retired: SigningKey
    current: SigningKey
    at: float  # wall-clock seconds


class Authority:
    """Mints credentials and says whose are honoured, by the keys of the last look at the database.

    Args:
        mirror: has the keys; the newest mints.
        biscuit_ttl: seconds that a credential is valid.
        wall_clock: gives the seconds since 1970.
    """

    def __init__(self, mirror: Mirror, biscuit_ttl: float, wall_clock: Callable[[], float]) -> None:
        self._mirror, self._biscuit_ttl, self._wall_clock = mirror, biscuit_ttl, wall_clock
        self._ring: tuple[StoredKey, ...] = ()  # those that are read in `_keys`
        self._keys: Mapping[int, SigningKey] = {}

    @property
    def signing_key(self) -> SigningKey:
        """The key that mints."""
        ring = self._mirror.latest.keys
        return self._read(ring)[ring[-1].id]

    @property
    def public_key(self) -> bytes:
        """Of the key that mints: 32 raw bytes."""
        return self.signing_key.public

    @property
    def trusted(self) -> TrustedKeys:
        """The keys whose credentials are good now."""
        return TrustedKeys(frozenset(key.public for key in self._honoured()))

    def issue(
        self,
        peer: PeerId,
        role: str,
        labels: Mapping[str, str],
        request: str,
        *,
        facts: Sequence[Fact] = (),
        ends_at: float = math.inf,
    ) -> Issue:
        """Mint a credential.

        Args:
            request: names what it answers, as Issue says.
            facts: what it says besides.
            ends_at: when it expires at the latest, wall-clock seconds.
        """
        # A credential states its expiry in whole seconds.
        expires_at = float(math.floor(min(self._wall_clock() + self._biscuit_ttl, ends_at)))
        token = mint(self.signing_key, peer=peer, role=role, labels=labels, expires_at=expires_at, facts=facts)
        return Issue(credential=token, expires_at=expires_at, request=request)

    def verify(self, token: bytes, peer: PeerId) -> Credential:
        """What the credential says of `peer`. Raises RefusedError (401) when it is none of `peer`, or not any more."""
        try:
            return verify(token, peer=peer, trusted=self.trusted, now=self._wall_clock())
        except CredentialError as exc:
            raise unauthorized(f"the credential does not admit the peer: {exc.reason}") from exc

    async def authenticate(self, token: bytes, peer: PeerId) -> Credential:
        """As `verify`, by the keys that there are at this moment. Raises StoreError, too."""
        await self._mirror.look()
        return self.verify(token, peer)

    async def key_set(self) -> KeysResponse:
        """The public keys, oldest first, signed by each of them. Raises StoreError."""
        await self._mirror.look()
        keys = self._honoured()
        answer = KeysResponse(
            public_keys=[key.public for key in keys], sign_time=datetime.fromtimestamp(self._wall_clock(), UTC)
        )
        signed = bytes(answer)
        answer.signatures = [key.sign(signed) for key in keys]
        return answer

    async def rotate(self, grace: float, max_age: float = 0.0) -> Rotation | None:
        """Have a new key take over if the one that signs is `max_age` seconds old. Of many replicas one does it.

        Args:
            grace: seconds that the old key is honoured for after this.
        Returns:
            What was done; None when it was not yet time, or another replica was faster.
        Raises:
            StoreError: the database does not answer.
        """
        seen, now = (await self._mirror.look()).keys[-1], self._wall_clock()
        if now < seen.created_at + max_age:
            return None
        retired, current = self.signing_key, SigningKey.generate()
        try:
            await self._mirror.rotate(seen, current.to_bytes(), now, grace)
        except RacedError:
            return None
        logger.info("keys rotated", extra={"retired": retired.key_id, "current": current.key_id, "grace": grace})
        return Rotation(retired, current, now)

    def _honoured(self) -> list[SigningKey]:
        ring = self._mirror.latest.keys
        keys = self._read(ring)
        return [keys[key.id] for key in honoured(ring, self._wall_clock())]

    def _read(self, ring: tuple[StoredKey, ...]) -> Mapping[int, SigningKey]:
        if ring is not self._ring:
            self._ring, self._keys = ring, {key.id: SigningKey.from_bytes(key.private_key) for key in ring}
        return self._keys


async def open_authority(store: Store, biscuit_ttl: float, wall_clock: Callable[[], float]) -> Authority:
    """The authority with the keys in the store; the first is made when there is none. Raises StoreError."""
    candidate = SigningKey.generate().to_bytes()
    await until_settled(lambda: store.mirror.first_key(candidate, wall_clock()))
    return Authority(store.mirror, biscuit_ttl, wall_clock)
