"""Being in a mesh: what a node and a router share. An identity, a credential that is renewed in time, the keys to
trust.

    state       the files that outlive the process
    renewal     when to renew a credential
    membership  enrolling, resuming, renewing; verifying others
"""

from agentmesh.membership.membership import Enrollment, Membership, open_membership
from agentmesh.membership.state import StateDir

__all__ = ["Enrollment", "Membership", "StateDir", "open_membership"]
