"""Dial-back, `/mesh/dialback/1.0.0`: a member asks a router that it is attached to whether it can be dialled.

    member                                    router
      | DialBackRequest{where it listens} --> | it dials those of the IP address that the session comes from,
      |                                       | each once, and has the member prove its key there
      | <-- DialBackResponse{where it answered} |

A router never dials another IP address than that: whoever asks can have nobody else disturbed, and learns nothing of
what listens there but himself. An address of a wildcard (`0.0.0.0`, `::`) stands for the address that the router sees,
which a member behind a NAT does not know. A request of a member that asked too often, or of any when too many are under
way, is reset with RATE_LIMITED or RESOURCE_LIMIT_EXCEEDED.
"""

from agentmesh.protocols.dialback.driver import ASK_ERRORS, DialBack, DialBackLimits, Probe, ask
from agentmesh.protocols.dialback.eligible import eligible, ip_of, stands_for
from agentmesh.protocols.dialback.wire import DIALBACK_ID, MAX_ADDRESS_CHARS, MAX_ADDRESSES, MAX_MESSAGE_BYTES

__all__ = [
    "ASK_ERRORS",
    "DIALBACK_ID",
    "MAX_ADDRESSES",
    "MAX_ADDRESS_CHARS",
    "MAX_MESSAGE_BYTES",
    "DialBack",
    "DialBackLimits",
    "Probe",
    "ask",
    "eligible",
    "ip_of",
    "stands_for",
]
