"""Every failure has one name in the figures, and the names are a closed list."""

import pytest
import trio

from agentmesh.errors import (
    CertificateError,
    ErrorCode,
    LimitExceededError,
    PeerMismatchError,
    RejectedError,
    RemoteProtocolError,
    StreamResetError,
)
from agentmesh.runtime.figures import ABUSES, HANDSHAKE_FAILURES, HELD, VIOLATION, abuse_of, failure_of
from agentmesh.runtime.yamux import BOUNDS


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (trio.TooSlowError(), "timeout"),
        (LimitExceededError("too much"), "too_long"),
        (CertificateError("none"), "certificate"),
        (PeerMismatchError("another"), VIOLATION),
        (RemoteProtocolError("no TLS"), VIOLATION),
        (RejectedError("na", ErrorCode.PROTOCOL_NEGOTIATION_FAILED), "refused"),
        (StreamResetError("the circuit was cut"), "left"),
        (trio.BrokenResourceError(), "left"),
        (trio.ClosedResourceError(), "left"),
    ],
    ids=repr,
)
def test_how_a_handshake_failed(error: Exception, name: str) -> None:
    assert failure_of(error) == name
    assert name in HANDSHAKE_FAILURES


def test_what_ended_a_session() -> None:
    assert {abuse_of(LimitExceededError("", limit=bound)) for bound in BOUNDS} == set(BOUNDS)
    for error in (LimitExceededError("", limit="of something else"), LimitExceededError(""), RemoteProtocolError("")):
        assert abuse_of(error) == VIOLATION
    assert set(ABUSES) == {*BOUNDS, HELD, VIOLATION}
