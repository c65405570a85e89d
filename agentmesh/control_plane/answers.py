"""The answers to requests to enroll, and the names by which requests are told apart."""

import hashlib

from agentmesh.control_plane.proof import Proof
from agentmesh.control_plane.records import Issue
from agentmesh.control_plane.times import to_datetime
from agentmesh.wire.messages.mesh.v1 import BootstrapEnrollResponse, EnrollmentStatus


def approved(issue: Issue, control_plane_key: bytes) -> BootstrapEnrollResponse:
    return BootstrapEnrollResponse(
        status=EnrollmentStatus.APPROVED,
        biscuit_token=issue.credential,
        control_plane_public_key=control_plane_key,
        expire_time=to_datetime(issue.expires_at),
    )


def pending(poll_interval: float) -> BootstrapEnrollResponse:
    """`poll_interval`: seconds until it is worth looking again."""
    seconds = max(1, round(poll_interval))
    return BootstrapEnrollResponse(status=EnrollmentStatus.PENDING, poll_interval_seconds=seconds)


def rejected(reason: str) -> BootstrapEnrollResponse:
    return BootstrapEnrollResponse(status=EnrollmentStatus.REJECTED, error_message=reason)


def request_name(proof: Proof, presented: bytes) -> str:
    """Tells one signed request from every other: the same again is a resend, and spends nothing."""
    return hashlib.sha256(b"%s %d %s" % (proof.purpose.encode(), proof.unix_ms, presented)).hexdigest()
