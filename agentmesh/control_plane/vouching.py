"""Whether to believe a set of keys."""

from agentmesh.credentials import TrustedKeys
from agentmesh.wire.messages.mesh.v1 import KeysResponse


def vouched_keys(answer: KeysResponse, trusted: TrustedKeys | None) -> TrustedKeys:
    """The keys in a control plane's answer.

    Args:
        answer: each key in it should have signed it.
        trusted: keys that we honour already, one of which has to have signed; None believes all of them together.
    Raises:
        RemoteProtocolError: no trusted key has signed, or one key in it has not.
    """
