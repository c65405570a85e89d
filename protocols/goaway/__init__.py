"""Go-away, `/mesh/goaway/1.0.0`: a router tells a member that it will hold it no longer, and when to ask again.

    router                                   member
      | RouterGoAway{reason, retry_after} --> | from a router that it is attached to: it finds another
      | end of stream ---------------------> | from anybody else: reset
      |                                      |
      | <-- end of stream, when it has read it

DRAINING: the router is about to stop. OVERLOADED: it holds more members than it wants to. Either way it closes the
session a few seconds later; what is under way on it has that long. A peer that does not speak the protocol is just
closed.
"""

from agentmesh.protocols.goaway.driver import Result, protocol, send_goaway
from agentmesh.protocols.goaway.events import GoAway, Reason
from agentmesh.protocols.goaway.wire import GOAWAY_ID, MAX_MESSAGE_BYTES

__all__ = ["GOAWAY_ID", "MAX_MESSAGE_BYTES", "GoAway", "Reason", "Result", "protocol", "send_goaway"]
