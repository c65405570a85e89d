"""Which agent a session is, and what a client may reach through one."""

import hashlib

import attrs

from agentmesh.abc import Session
from agentmesh.authorization import Call
from agentmesh.errors import CredentialError
from agentmesh.membership import Membership
from agentmesh.pool.agent.config import AGENT_LABEL
from agentmesh.pool.router.attached import Bearer
from agentmesh.protocols.pool import Code, Open, OpenResult, Stage
from agentmesh.router.entrance import Entrance
from agentmesh.types import PeerId

TOKEN_ID_DIGITS = 16  # of the hash of a credential, which is not told itself

_FORBIDDEN = OpenResult(Stage.AUTHORIZATION, Code.FORBIDDEN)
_UNDECIDED = OpenResult(Stage.AUTHORIZATION, Code.INTERNAL_ERROR, retryable=True, retry_after_ms=1000)  # no policy yet


@attrs.frozen
class Judge:
    """Who a member is, and what it may reach.

    Args:
        membership: the router's.
        entrance: who is in, and with what.
    """

    _membership: Membership
    _entrance: Entrance

    def bearer(self, session: Session) -> Bearer | None:
        """Which agent the credential is for that was shown on a session. Each connection shows its own."""
        credential = self._entrance.shown.get(session.peer) if session in self._entrance.entered else None
        if credential is None:
            return None
        token_id = hashlib.sha256(credential.token).hexdigest()[:TOKEN_ID_DIGITS]
        return Bearer(credential.labels.get(AGENT_LABEL), token_id)

    def judge(self, client: PeerId, agent_id: str, request: Open) -> OpenResult | None:
        """Why the mesh's policy does not grant a member this target through this agent; None: it does.

        The agent has rules of its own.
        """
        credential = self._entrance.shown.get(client)
        if credential is None:
            return _FORBIDDEN
        try:
            self._entrance.rules.check(credential, None, agent_call(agent_id, request), self._membership.trusted)
        except CredentialError as exc:
            return _UNDECIDED if exc.reason == "undecided" else _FORBIDDEN
        return None


def agent_call(agent_id: str, request: Open) -> Call:
    """What a policy judges: `egress://<agent>`, by CONNECT of `/<protocol>/<host>/<port>`. It belongs to no member."""
    path = f"/{request.protocol}/{request.target_host.lower()}/{request.target_port}"
    return Call("egress", agent_id, "CONNECT", path)
