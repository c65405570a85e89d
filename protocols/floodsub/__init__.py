"""Floodsub, `/floodsub/1.0.0`: whoever subscribes to a topic hears what is published on it. libp2p's wire.

    leaf                       router                      another router
      | -- subscribe ---------> | -- subscribe ------------> |
      | <--- message ---------- | <--- message ------------- |     each message once over each link, and never back
      | ---- message ---------> | ---- message ------------> |

Each side talks on a stream of its own and is heard on the other's. Members are leaves: they are linked to their routers
only, and pass nothing on. Every message is signed by its author, and verified before it is delivered or passed on; what
is seen already goes nowhere. A peer that is too slow, or does too much, loses its link.
Source: libp2p specification "pubsub", with StrictSign. `topics` says what a router subscribes to, `forwarding` who is
given what.
"""

from agentmesh.protocols.floodsub.driver import Floodsub, FloodsubStatistics
from agentmesh.protocols.floodsub.events import CutReason, Fate, Message, Role, Verdict
from agentmesh.protocols.floodsub.limits import FloodsubLimits, PeerLimits
from agentmesh.protocols.floodsub.policy import Policy
from agentmesh.protocols.floodsub.reader import MAX_UNREAD, TopicReader
from agentmesh.protocols.floodsub.wire import FLOODSUB_ID

__all__ = [
    "FLOODSUB_ID",
    "MAX_UNREAD",
    "CutReason",
    "Fate",
    "Floodsub",
    "FloodsubLimits",
    "FloodsubStatistics",
    "Message",
    "PeerLimits",
    "Policy",
    "Role",
    "TopicReader",
    "Verdict",
]
