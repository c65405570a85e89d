"""Security for runs that are to be the same every time."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agentmesh.identity import Identity
from agentmesh.runtime.tls import TlsContext


class SteadyTlsContext(TlsContext):
    """TLS whose handshakes are as long every time: `open_host(…, security=SteadyTlsContext)`.

    Its keys are no less random. But an ECDSA signature, as certificates have it otherwise, is a few bytes longer or
    shorter each time, and over a link of some bandwidth everything behind it arrives at another moment.

    Args:
        identity: whose key the certificate proves.
    """

    def __init__(self, identity: Identity) -> None:
        super().__init__(identity, Ed25519PrivateKey.generate())
