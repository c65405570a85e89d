"""Being in a mesh: what a node and a router share. An identity, a credential that is renewed in time, the keys to
trust.

    enrollment  how to get in
    state       the files that outlive the process
    renewal     when to renew a credential
    verifier    whose credentials are honoured
    membership  enrolling, resuming, renewing
    plane       what all that needs of a control plane
    gate        whom a member lets in, and who may call what
"""

from agentmesh.membership.enrollment import Enrollment
from agentmesh.membership.membership import Membership, open_membership
from agentmesh.membership.plane import PlaneClient
from agentmesh.membership.state import StateDir, StateError

__all__ = ["Enrollment", "Membership", "PlaneClient", "StateDir", "StateError", "open_membership"]
