"""Auth, `/mesh/auth/1.0.0`: two peers show each other their credentials, and each decides for itself.

    opener                               answerer
      | AuthFrame{biscuit} ----------------> | banned, too often, not valid: reset, without an answer
      |                                      | valid: the opener is admitted until its credential expires
      | <-- AuthResponse{success, biscuit}   |
      | valid: the answerer is what it says  |

A credential is honoured only over the secure channel of the peer that it names, so it is worth nothing to whoever
overhears it. After a refresh of its credential a member runs the handshake again on the session that it has.
"""

from agentmesh.protocols.auth.driver import AuthPolicy, AuthStatistics, Result, authenticate, protocol
from agentmesh.protocols.auth.limiter import PeerLimiter
from agentmesh.protocols.auth.wire import AUTH_ID

__all__ = ["AUTH_ID", "AuthPolicy", "AuthStatistics", "PeerLimiter", "Result", "authenticate", "protocol"]
