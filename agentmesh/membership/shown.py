"""The credentials of the members that a host admits, for whoever has to know more than that they are in."""

from collections.abc import Callable

from agentmesh.credentials import ROLE_ROUTER, Credential
from agentmesh.runtime.admission import AdmissionBook
from agentmesh.types import PeerId

Admit = Callable[[PeerId, Credential], None]


class ShownCredentials:
    """The credentials of members, from their admission to its end. A router's is not kept: it speaks for others.

    Args:
        admissions: whom the host admits.
        admit: lets a peer in, or raises RejectedError.
    """

    def __init__(self, admissions: AdmissionBook, admit: Admit) -> None:
        self._admit = admit
        self._shown: dict[PeerId, Credential] = {}
        admissions.on_lapse(self._forget)

    def admit(self, peer: PeerId, credential: Credential) -> None:
        """Let a peer in, and know from then on what it has shown. Raises RejectedError."""
        self._admit(peer, credential)
        if credential.role == ROLE_ROUTER:
            self._shown.pop(peer, None)
        else:
            self._shown[peer] = credential

    def get(self, peer: PeerId) -> Credential | None:
        """A member's; None when it is not admitted."""
        return self._shown.get(peer)

    def __len__(self) -> int:
        return len(self._shown)

    def _forget(self, peer: PeerId) -> None:
        self._shown.pop(peer, None)
