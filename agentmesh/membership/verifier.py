"""Whose credentials are honoured. Checking a signature and its facts takes 200 us, so what was found is remembered."""

from collections.abc import Callable

from agentmesh.credentials import Credential, TrustedKeys, verify
from agentmesh.types import PeerId

MAX_REMEMBERED_PEERS = 4096  # the last credential of each; the peer heard of least recently goes first


class Verifier:
    """Judges credentials by the keys that are trusted now.

    Args:
        wall_clock: seconds since 1970.
        max_peers: how many peers' last credentials are remembered.
    """

    def __init__(self, wall_clock: Callable[[], float], max_peers: int = MAX_REMEMBERED_PEERS) -> None:
        self._wall_clock = wall_clock
        self._max_peers = max_peers
        self._trusted = TrustedKeys()
        self._remembered: dict[PeerId, Credential] = {}

    @property
    def trusted(self) -> TrustedKeys:
        """The keys whose credentials are honoured."""
        return self._trusted

    def trust(self, keys: TrustedKeys) -> None:
        """Honour these keys, and no others, from now on."""
        if keys != self._trusted:
            self._trusted = keys
            self._remembered.clear()  # it may rest on a key that is not trusted any more

    def verify(self, token: bytes, peer: PeerId) -> Credential:
        """What a token says of `peer`, who has shown it over a channel that proves it is `peer`.

        Raises:
            CredentialError: it does not admit the peer.
        """
        now = self._wall_clock()
        known = self._remembered.pop(peer, None)
        if known is None or known.token != token or now > known.expires_at:
            known = verify(token, peer=peer, trusted=self._trusted, now=now)
        self._remember(known)
        return known

    def __len__(self) -> int:
        return len(self._remembered)

    def _remember(self, credential: Credential) -> None:
        if len(self._remembered) >= self._max_peers:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[credential.peer] = credential
