"""What a call of the control plane can end in, for whoever called.

ControlPlaneError(status)
├── RequestRefusedError             it said no, and would say it again: ours to mend
│   ├── UnauthorizedError           it does not know us, or our credential, any more: enroll
│   └── EnrollmentRejectedError     the bootstrap token or an admin does not let us in
└── ControlPlaneUnavailableError    no answer, or none but "later", for as long as we tried: try later
"""

from agentmesh.errors import MeshError


class ControlPlaneError(MeshError):
    """A call of the control plane failed.

    Attributes:
        status: of its last HTTP answer, or None when there was none.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class RequestRefusedError(ControlPlaneError):
    """The control plane said no. The same request will not succeed later; the text is its reason."""


class UnauthorizedError(RequestRefusedError):
    """The control plane does not take our proof or our credential. Enroll again."""


class EnrollmentRejectedError(RequestRefusedError):
    """The bootstrap token does not admit us, or an admin turned us down. The text says which."""


class ControlPlaneUnavailableError(ControlPlaneError):
    """No answer, or none but "later", until the budget was spent. Our side is in order; try again later."""
