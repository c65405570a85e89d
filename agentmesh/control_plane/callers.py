"""Who calls: members by their credential and a proof of their key."""

from collections.abc import Callable

from starlette.requests import Request

from agentmesh.control_plane.authority import Authority
from agentmesh.control_plane.http import bearer_credential, proof_in_headers
from agentmesh.control_plane.members import BANNED
from agentmesh.control_plane.proof import check_proof
from agentmesh.control_plane.records import Node
from agentmesh.control_plane.refusals import forbidden, unauthorized
from agentmesh.control_plane.store import Store
from agentmesh.credentials import bearer_of
from agentmesh.errors import CredentialError

NO_PROOF = "a proof of the key is needed: X-Mesh-Challenge-Ts and X-Mesh-Challenge-Sig"


class Callers:
    """Args:
    wall_clock: gives the seconds since 1970.
    """

    def __init__(self, store: Store, authority: Authority, wall_clock: Callable[[], float]) -> None:
        self._store, self._authority, self._wall_clock = store, authority, wall_clock

    async def member(self, request: Request, purpose: str) -> Node:
        """The member that sends a request without a body.

        Args:
            purpose: of the proof that it has to give.
        Raises:
            RefusedError: 401 no credential that is good, no proof, or not enrolled; 403 banned.
            StoreError: the database does not answer.
        """
        token, snapshot = bearer_credential(request), await self._store.mirror.look()
        try:
            peer = bearer_of(token, self._authority.trusted)
        except CredentialError as exc:
            raise unauthorized(f"the credential admits nobody: {exc.reason}") from exc
        check_proof(peer, proof_in_headers(request, purpose, NO_PROOF), self._wall_clock())
        self._authority.verify(token, peer)
        node = await self._store.node(peer)
        if node is None:
            raise unauthorized("the peer is not enrolled")
        if str(peer) in snapshot.banned:
            raise forbidden(BANNED)
        return node
