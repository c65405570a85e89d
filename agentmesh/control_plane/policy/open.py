"""The policy of a mesh whose members all trust each other, such as one on a laptop: everybody may do everything."""

from agentmesh.control_plane.policy.model import ADMISSION_ROLES, Policy, Role
from agentmesh.control_plane.policy.patterns import ANYTHING, LabelPattern, ServicePattern, TargetPattern

OPEN_POLICY = Policy(
    tuple(
        Role(name, (ServicePattern(None, ANYTHING),), (TargetPattern(None, ANYTHING),), (LabelPattern(None, None),))
        for name in ADMISSION_ROLES
    )
)
