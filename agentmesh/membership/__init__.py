"""Being in a mesh: what a node and a router share. An identity, a credential that is renewed in time, the keys to
trust.

    enrollment  how to get in
    state       the files that outlive the process
    renewal     when to renew a credential
    verifier    whose credentials are honoured
    membership  enrolling, resuming, renewing
    opening     all of these for as long as a block lasts
    plane       what all that needs of a control plane
    bans        who is out
    rulebook    the mesh's policy
    kept_rules  … in a file
    news        what the control plane says to every member at once
    shown       what its members have shown to a host
    topics      who may talk on which topic
    readmission being admitted again before a credential ends
    gate        whom a member lets in, and who may call what
    guard       the token of a port of its own
    pages       what an operator sees of it
"""

from agentmesh.membership.enrollment import Enrollment
from agentmesh.membership.membership import Membership
from agentmesh.membership.opening import open_membership
from agentmesh.membership.plane import PlaneClient
from agentmesh.membership.state import StateDir, StateError

__all__ = ["Enrollment", "Membership", "PlaneClient", "StateDir", "StateError", "open_membership"]
