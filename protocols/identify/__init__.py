"""Identify, `/ipfs/id/1.0.0`: who a peer is, where it listens, what it speaks, and where it sees us.

    dialer                         listener
      | (opens the stream) --------> |
      | <-- Identify, end of stream  |

All of it is the peer's own word but for its key, which the session has proved already; addresses are hints to dial.
Source: libp2p specification "identify". Signed peer records are not used.
"""

from agentmesh.protocols.identify.driver import identify, protocol
from agentmesh.protocols.identify.events import PeerInfo
from agentmesh.protocols.identify.wire import IDENTIFY_ID

__all__ = ["IDENTIFY_ID", "PeerInfo", "identify", "protocol"]
